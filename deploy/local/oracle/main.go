// The oracle asks the real kube-scheduler's plugins about snapshots of a cluster.
//
// It reads one JSON request a line from standard input and writes one JSON answer a line to standard output, in the
// same order, until the input ends. A request that cannot be answered gets {"error": "..."} and the next one is read.
//
//	{"mode": "explain",  "snapshot": List, "pods": ["ns/name"], "nodes": ["n"], "all": true}
//	{"mode": "replay",   "snapshot": List, "drains": [{"node", "taint", "placements": [{"pod", "node"}], "remove": false}]}
//	{"mode": "firstfit", "snapshot_file": "path", "ondemand": ["n"], "spot": ["n"], "movable": {"n": ["ns/name"]}, "taint": {}}
//	{"mode": "score",    "snapshot": List, "pods": ["ns/name"], "nodes": ["n"]}
//	{"mode": "plugins"}
//
// The framework is the one of the default profile with the default feature gates of the version in go.mod.
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
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

type request struct {
	Mode         string          `json:"mode"`
	Snapshot     json.RawMessage `json:"snapshot"`
	SnapshotFile string          `json:"snapshot_file"`

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

// silence keeps the scheduler's own log lines and handled errors out of the way: the answers carry what matters.
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

// respond answers one request; a panic inside the scheduler's code is an answer too, since it says something about
// the snapshot.
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
	world, err := newWorld(found)
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
		return world.framework.ListPlugins(), nil
	}
	return nil, fmt.Errorf("mode %q: expected explain, replay, firstfit, score or plugins", asked.Mode)
}
