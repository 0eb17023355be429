// The caller plays Cluster Autoscaler's side of external gRPC: the calls of its loop, of a scale-up and of a scale-down,
// in its order, with its deadline a call, and with the reactions of its client. What it needs of the answers is checked
// on the way, and template nodes are read with Go's own core/v1 types.
//
// It reads one JSON object from standard input (see settings) and writes {"calls": […], "victim", "made": […]} to
// standard output; the first thing that Cluster Autoscaler could not work with is "problem", and the exit code 1.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// settings are the keys of Cluster Autoscaler's cloud configuration, and what it would know of the cluster.
type settings struct {
	Address    string `json:"address"`
	Cert       string `json:"cert"`
	Key        string `json:"key"`
	CACert     string `json:"cacert"`
	Timeout    string `json:"grpc_timeout"`
	Generation string `json:"generation"` // Oldest, Old or New
	Group      string `json:"group"`      // the one that grows and shrinks
	Nodes      []node `json:"nodes"`      // the group's; the first is the victim
	Foreign    node   `json:"foreign"`    // of no group
	Patience   string `json:"patience"`   // for machines to come and go
}

type node struct {
	Name       string            `json:"name"`
	ProviderID string            `json:"providerID"`
	Labels     map[string]string `json:"labels"`
	Notes      map[string]string `json:"annotations"`
}

type result struct {
	Calls   []call   `json:"calls"`
	Victim  string   `json:"victim"`
	Made    []string `json:"made"`
	Problem string   `json:"problem,omitempty"`
}

func main() {
	var given settings
	if err := json.NewDecoder(os.Stdin).Decode(&given); err != nil {
		fail(fmt.Errorf("standard input: %w", err))
	}
	patience, err := time.ParseDuration(given.Patience)
	if err != nil {
		fail(fmt.Errorf("patience: %w", err))
	}
	client, err := connect(given)
	if err != nil {
		fail(err)
	}
	autoscaler := &autoscaler{client: client, given: given, patience: patience}
	err = autoscaler.run()
	told := result{Calls: client.calls, Victim: given.Nodes[0].ProviderID, Made: autoscaler.made}
	if err != nil {
		told.Problem = fmt.Sprintf("%s: %v", client.step, err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(told); err != nil {
		fail(err)
	}
	if told.Problem != "" {
		os.Exit(1)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "caller:", err)
	os.Exit(2)
}
