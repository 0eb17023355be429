// The caller makes the external gRPC calls of Cluster Autoscaler: those of its loop, of a scale-up and of a scale-down, in
// its order and with its deadline for each call. It checks the parts of the responses that Cluster Autoscaler uses, and
// decodes template nodes with the core/v1 types of k8s.io/api.
//
// It reads one JSON object from standard input (see settings) and writes {"calls": […], "victim", "made": […]} to
// standard output. On the first response that Cluster Autoscaler could not use, it also writes "problem" and exits with 1.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// settings are the keys of Cluster Autoscaler's cloud configuration, and the state of the cluster.
type settings struct {
	Address    string `json:"address"`
	Cert       string `json:"cert"`
	Key        string `json:"key"`
	CACert     string `json:"cacert"`
	Timeout    string `json:"grpc_timeout"`
	Generation string `json:"generation"` // Oldest, Old or New
	Group      string `json:"group"`      // the group that is scaled
	Nodes      []node `json:"nodes"`      // of the group; the first is the victim
	Foreign    node   `json:"foreign"`    // a node of no group
	Patience   string `json:"patience"`   // time limit for changes of machines
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
	Created []string `json:"created"`
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
	told := result{Calls: client.calls, Victim: given.Nodes[0].ProviderID, Created: autoscaler.made}
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
