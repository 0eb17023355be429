package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// terminating is the time until an evicted pod is gone, and starting the time until its replacement is Ready.
	terminating = 100 * time.Millisecond
	starting    = 300 * time.Millisecond
)

// evict answers like the eviction subresource. The evicted pod terminates, and a replacement starts on a spot node:
// the stand-in acts as kubelet, controller and scheduler, without their rules.
func (s *server) evict(w http.ResponseWriter, r *http.Request, named target) {
	var body struct {
		DeleteOptions struct {
			Preconditions struct{ UID string }
		}
	}
	text, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(text, &body) != nil {
		s.refuse(w, r, http.StatusBadRequest, metav1.StatusReasonBadRequest, "expected an Eviction")
		return
	}
	evicted := s.find(named)
	if evicted == nil {
		s.refuse(w, r, http.StatusNotFound, metav1.StatusReasonNotFound, "not found")
		return
	}
	if uid := body.DeleteOptions.Preconditions.UID; uid != "" && uid != evicted.uid {
		s.refuse(w, r, http.StatusConflict, metav1.StatusReasonConflict, "the UID in the precondition does not match")
		return
	}
	if r.URL.Query().Get("dryRun") == "" {
		go s.move(evicted)
	}
	s.note(r, http.StatusCreated)
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess, Code: http.StatusCreated,
	})
}

// move terminates a pod and starts its replacement.
func (s *server) move(evicted *object) {
	s.editPod(evicted.key(), func(pod *corev1.Pod) {
		now := metav1.Now()
		pod.DeletionTimestamp = &now
	})
	time.Sleep(terminating)
	replacement := s.replace(evicted.key(), s.spotNode())
	time.Sleep(starting)
	s.editPod(replacement, func(pod *corev1.Pod) { setReady(pod, corev1.ConditionTrue) })
}

// editPod changes a pod if it still exists.
func (s *server) editPod(key string, edit func(*corev1.Pod)) {
	s.Lock()
	defer s.Unlock()
	kept := s.collections[podsPath].objects[key]
	if kept == nil {
		return
	}
	pod := kept.pod()
	edit(pod)
	if _, err := s.put(podsPath, pod); err != nil {
		panic(err) // it was encoded before
	}
}

// replace deletes a pod, and creates a copy with another name on a node. It returns the key of the copy.
func (s *server) replace(key, node string) string {
	s.Lock()
	defer s.Unlock()
	kept := s.collections[podsPath].objects[key]
	if kept == nil {
		return ""
	}
	pod := kept.pod()
	pod.Name = fmt.Sprintf("%s%05x", pod.GenerateName, rand.Uint32N(1<<20))
	pod.UID = types.UID(fmt.Sprintf("standin-%016x", rand.Uint64()))
	pod.DeletionTimestamp, pod.CreationTimestamp, pod.Spec.NodeName = nil, metav1.Now(), node
	setReady(pod, corev1.ConditionFalse)
	if err := s.remove(podsPath, kept); err != nil {
		panic(err)
	}
	created, err := s.put(podsPath, pod)
	if err != nil {
		panic(err)
	}
	return created.key()
}

func (o *object) pod() *corev1.Pod {
	pod := &corev1.Pod{}
	if err := pod.Unmarshal(o.proto); err != nil {
		panic(err) // it was encoded by this program
	}
	return pod
}

func setReady(pod *corev1.Pod, status corev1.ConditionStatus) {
	for i := range pod.Status.Conditions {
		if kind := pod.Status.Conditions[i].Type; kind == corev1.PodReady || kind == corev1.ContainersReady {
			pod.Status.Conditions[i].Status = status
			pod.Status.Conditions[i].LastTransitionTime = metav1.Now()
		}
	}
}

// spotNode returns a random spot node that takes pods.
func (s *server) spotNode() string {
	s.Lock()
	defer s.Unlock()
	nodes := s.collections[nodesPath].objects
	names := []string{}
	for name, kept := range nodes {
		node := &corev1.Node{}
		if err := node.Unmarshal(kept.proto); err != nil {
			panic(err)
		}
		if takesPods(node) {
			names = append(names, name)
		}
	}
	return names[rand.IntN(len(names))]
}
