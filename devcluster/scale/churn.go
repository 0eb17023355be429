package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// turnoverEvents is the number of events of a replaced pod: DELETED, ADDED, and MODIFIED when the new pod is Ready.
const turnoverEvents = 3

// churned is the result of a churn.
type churned struct {
	Events  int     `json:"events"`
	Seconds float64 `json:"seconds"`
}

// churn changes random pods at a rate, and responds at the end. The query contains the rate in events per second, the
// seconds, and the kind: "status" changes annotations of running pods, "turnover" replaces pods by others on the same
// node.
func (s *server) churn(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	rate, seconds, seed := asNumber(query.Get("rate")), asNumber(query.Get("seconds")), asNumber(query.Get("seed"))
	change, eventsOfChange := s.touch, 1
	if query.Get("kind") == "turnover" {
		change, eventsOfChange = s.turnOver, turnoverEvents
	}
	rng := rand.New(rand.NewPCG(uint64(seed), 1))
	keys := s.podKeys(rng)
	began := time.Now()
	changes := rate * seconds / eventsOfChange
	for number := range changes {
		at := began.Add(time.Duration(number) * time.Duration(eventsOfChange) * time.Second / time.Duration(rate))
		time.Sleep(time.Until(at))
		place := rng.IntN(len(keys))
		keys[place] = change(keys[place], number)
	}
	_ = json.NewEncoder(w).Encode(churned{changes * eventsOfChange, time.Since(began).Seconds()})
}

// podKeys returns the pods on spot nodes in random order: churn never changes which nodes can be drained.
func (s *server) podKeys(rng *rand.Rand) []string {
	objects, _, _ := s.page(s.collections[podsPath], "", 0, func(kept *object) bool { return kept.phase == "Running" })
	keys := make([]string, len(objects))
	for i, kept := range objects {
		keys[i] = kept.key()
	}
	rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return keys
}

// touch changes an annotation of a pod. Neither its class nor the load of its node changes.
func (s *server) touch(key string, number int) string {
	s.editPod(key, func(pod *corev1.Pod) {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations["example.com/touched"] = fmt.Sprint(number)
	})
	return key
}

// turnOver replaces a pod by a new one on the same node.
func (s *server) turnOver(key string, _ int) string {
	kept := s.find(target{path: podsPath, namespace: "", name: key})
	if kept == nil {
		return key
	}
	created := s.replace(key, kept.node)
	s.editPod(created, func(pod *corev1.Pod) { setReady(pod, corev1.ConditionTrue) })
	return created
}
