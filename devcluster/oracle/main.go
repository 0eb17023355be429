// The oracle evaluates the plugins of the real kube-scheduler on snapshots of a cluster.
//
// It reads JSON requests from standard input, one per line, and writes the answers to standard output in the same order
// and format. The answer to an invalid request is {"error": "..."}.
//
//	{"mode": "explain",  "snapshot": List, "pods": ["ns/name"], "nodes": ["n"], "all": true}
//	{"mode": "replay",   "snapshot": List, "drains": [{"node", "taint", "placements": [{"pod", "node"}], "remove": false}]}
//	{"mode": "firstfit", "snapshot_file": "path", "ondemand": ["n"], "spot": ["n"], "movable": {"n": ["ns/name"]}, "taint": {}}
//	{"mode": "score",    "snapshot": List, "pods": ["ns/name"], "nodes": ["n"]}
//	{"mode": "plugins"}
//
// With "config", a KubeSchedulerConfiguration as text, pods are evaluated with the profile of their schedulerName, and
// otherwise with the default profile. The feature gates are the defaults of the version in go.mod. The files since_1_35.go,
// until_1_35.go and so on contain what differs between the versions' Go packages.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

type request struct {
	Mode         string          `json:"mode"`
	Snapshot     json.RawMessage `json:"snapshot"`
	SnapshotFile string          `json:"snapshot_file"`
	Config       string          `json:"config"`

	explainRequest
	replayRequest
	firstFitRequest
}

func main() {
	silence()
	metrics.Register()
	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	output := bufio.NewWriterSize(os.Stdout, 1<<20)
	for {
		line, err := input.ReadBytes('\n')
		if len(line) > 1 {
			if err := writeLine(output, respond(line)); err != nil {
				fail(err)
			}
		}
		if err == io.EOF {
			return
		}
		if err != nil {
			fail(err)
		}
	}
}

// silence discards the scheduler's log lines and handled errors: the answers contain everything relevant.
func silence() {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	runtime.ErrorHandlers = nil
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "oracle:", err)
	os.Exit(1)
}

func writeLine(output *bufio.Writer, answer any) error {
	encoder := json.NewEncoder(output)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(answer); err != nil {
		return err
	}
	return output.Flush()
}

type failure struct {
	Error string `json:"error"`
	Stack string `json:"stack,omitempty"`
}

// respond answers one request. A panic in the scheduler's code is reported as an error, because the snapshot caused it.
func respond(line []byte) (answer any) {
	defer func() {
		if cause := recover(); cause != nil {
			answer = failure{Error: fmt.Sprintf("panic: %v", cause), Stack: string(debug.Stack())}
		}
	}()
	answer, err := dispatch(line)
	if err != nil {
		return failure{Error: err.Error()}
	}
	return answer
}

func dispatch(line []byte) (any, error) {
	var asked request
	if err := json.Unmarshal(line, &asked); err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	found, err := readObjects(asked.Snapshot, asked.SnapshotFile)
	if err != nil {
		return nil, err
	}
	world, err := newWorld(found, asked.Config)
	if err != nil {
		return nil, err
	}
	defer world.close()
	switch asked.Mode {
	case "explain":
		return explain(world, asked.explainRequest)
	case "replay":
		return replay(world, asked.replayRequest)
	case "firstfit":
		return firstFit(world, asked.firstFitRequest)
	case "score":
		return score(world, asked.explainRequest)
	case "plugins":
		return listPlugins(world), nil
	}
	return nil, fmt.Errorf("mode %q: expected explain, replay, firstfit, score or plugins", asked.Mode)
}

// listPlugins returns the plugins of each profile.
func listPlugins(w *world) map[string]*config.Plugins {
	listed := map[string]*config.Plugins{}
	for name, frame := range w.frames {
		listed[name] = frame.ListPlugins()
	}
	return listed
}
