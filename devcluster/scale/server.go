package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	podsPath  = "/api/v1/pods"
	nodesPath = "/api/v1/nodes"
)

// server handles the requests that the daemon and the informers send, like an API server.
type server struct {
	*store
	calls sync.Mutex
	seen  []call
}

// call is a write or a list, for the measurements.
type call struct {
	Verb   string    `json:"verb"`
	Path   string    `json:"path"`
	Query  string    `json:"query"`
	Status int       `json:"status"`
	At     time.Time `json:"at"`
}

func newServer(kept *store) http.Handler {
	s := &server{store: kept}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /standin/churn", s.churn)
	mux.HandleFunc("GET /standin/calls", s.showCalls)
	mux.HandleFunc("/", s.serve)
	return mux
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	named, served := parse(r.URL.Path)
	if !served {
		s.refuse(w, r, http.StatusNotFound, "NotFound", "the server could not find the requested resource")
		return
	}
	switch {
	case r.Method == http.MethodGet && named.name == "" && r.URL.Query().Get("watch") != "":
		s.watch(w, r, named)
	case r.Method == http.MethodGet && named.name == "":
		s.list(w, r, named)
	case r.Method == http.MethodGet:
		s.get(w, r, named)
	case r.Method == http.MethodPost && named.subresource == "eviction":
		s.evict(w, r, named)
	case r.Method == http.MethodPost:
		s.create(w, r, named)
	case r.Method == http.MethodPatch || r.Method == http.MethodPut:
		s.change(w, r, named)
	default:
		s.refuse(w, r, http.StatusMethodNotAllowed, "MethodNotAllowed", "not supported by the stand-in")
	}
}

// note records a call that is not a GET of one object or a watch.
func (s *server) note(r *http.Request, status int) {
	s.calls.Lock()
	defer s.calls.Unlock()
	s.seen = append(s.seen, call{r.Method, r.URL.Path, r.URL.RawQuery, status, time.Now()})
}

func (s *server) showCalls(w http.ResponseWriter, _ *http.Request) {
	s.calls.Lock()
	defer s.calls.Unlock()
	_ = json.NewEncoder(w).Encode(s.seen)
}

func (s *server) refuse(w http.ResponseWriter, r *http.Request, code int, reason metav1.StatusReason, message string) {
	s.note(r, code)
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Message: message, Reason: reason, Code: int32(code),
	})
}

func (s *server) answer(w http.ResponseWriter, r *http.Request, named target, code int, kept *object) {
	if r.Method != http.MethodGet {
		s.note(r, code)
	}
	body, contentType := kept.json, jsonType
	if wantsProtobuf(r) {
		body, contentType = enveloped(named.kind, kept.proto), protobufType
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(code)
	_, _ = w.Write(body)
}

func wantsProtobuf(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Accept"), protobufType)
}

func (s *server) get(w http.ResponseWriter, r *http.Request, named target) {
	if kept := s.find(named); kept != nil {
		s.answer(w, r, named, http.StatusOK, kept)
	} else {
		s.refuse(w, r, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("%s %q not found", named.path, named.name))
	}
}

func (s *server) find(named target) *object {
	s.Lock()
	defer s.Unlock()
	return s.collections[named.path].objects[keyOf(named.namespace, named.name)]
}

func (s *server) create(w http.ResponseWriter, r *http.Request, named target) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	typed, err := decode(named.kind, text)
	if err != nil {
		s.refuse(w, r, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	access, _ := meta.Accessor(typed)
	access.SetNamespace(named.namespace)
	access.SetUID(types.UID(fmt.Sprintf("standin-%d", time.Now().UnixNano())))
	access.SetCreationTimestamp(metav1.Now())
	s.Lock()
	defer s.Unlock()
	if s.collections[named.path].objects[keyOf(named.namespace, access.GetName())] != nil {
		s.refuse(w, r, http.StatusConflict, metav1.StatusReasonAlreadyExists, "it exists already")
		return
	}
	kept, err := s.put(named.path, typed)
	if err != nil {
		s.refuse(w, r, http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error())
		return
	}
	s.answer(w, r, named, http.StatusCreated, kept)
}

// change applies a merge patch, or replaces the object. A resourceVersion in the body must be the current one.
func (s *server) change(w http.ResponseWriter, r *http.Request, named target) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var head struct {
		Metadata struct{ ResourceVersion string }
	}
	_ = json.Unmarshal(text, &head)
	s.Lock()
	defer s.Unlock()
	before := s.collections[named.path].objects[keyOf(named.namespace, named.name)]
	if before == nil {
		s.refuse(w, r, http.StatusNotFound, metav1.StatusReasonNotFound, "not found")
		return
	}
	if expected := head.Metadata.ResourceVersion; expected != "" && expected != fmt.Sprint(before.version) {
		s.refuse(w, r, http.StatusConflict, metav1.StatusReasonConflict, "the object has been modified")
		return
	}
	if r.Method == http.MethodPatch {
		if text, err = jsonpatch.MergePatch(before.json, text); err != nil {
			s.refuse(w, r, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
			return
		}
	}
	typed, err := decode(named.kind, text)
	if err == nil {
		before, err = s.put(named.path, typed)
	}
	if err != nil {
		s.refuse(w, r, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	s.answer(w, r, named, http.StatusOK, before)
}

// selected returns the filter for the query parameter fieldSelector. Only names and the fields of pods are supported.
func selected(named target, selector string) (func(*object) bool, error) {
	checks := []func(*object) bool{}
	for _, part := range slices.DeleteFunc(strings.Split(selector, ","), func(part string) bool { return part == "" }) {
		field, value, found := strings.Cut(part, "=")
		field, negated := strings.CutSuffix(field, "!")
		value = strings.TrimPrefix(value, "=")
		of, known := map[string]func(*object) string{
			"spec.nodeName": func(o *object) string { return o.node },
			"status.phase":  func(o *object) string { return o.phase },
			"metadata.name": func(o *object) string { return o.name },
		}[field]
		if !found || !known {
			return nil, fmt.Errorf("field selector %q is not supported by the stand-in", part)
		}
		checks = append(checks, func(o *object) bool { return (of(o) == value) != negated })
	}
	return func(o *object) bool {
		if named.namespace != "" && o.namespace != named.namespace {
			return false
		}
		for _, check := range checks {
			if !check(o) {
				return false
			}
		}
		return true
	}, nil
}

// asNumber returns a number of the query, or 0.
func asNumber(text string) int {
	number, _ := strconv.Atoi(text)
	return number
}

// takesPods returns whether a typed node is a spot node on which new pods may be placed.
func takesPods(node *corev1.Node) bool {
	_, spot := node.Labels["node-role.kubernetes.io/spot-worker"]
	return spot && !node.Spec.Unschedulable && len(node.Spec.Taints) == 0
}
