package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// serveCommand serves a cluster file of tests/bench/big.py: a kind List with one object per line.
func serveCommand() *cobra.Command {
	var cluster, kubeconfig string
	command := &cobra.Command{
		Use:   "serve",
		Short: "Serve a cluster from memory; the kubeconfig is written once it is served",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			kept := newStore()
			if err := kept.read(cluster); err != nil {
				return err
			}
			address, listener, err := listen()
			if err != nil {
				return err
			}
			if err := os.WriteFile(kubeconfig, address.kubeconfig(), 0o600); err != nil {
				return err
			}
			fmt.Printf("serving %d pods on %s\n", len(kept.collections[podsPath].objects), address.url)
			server := http.Server{Handler: newServer(kept), TLSConfig: address.config}
			return server.ServeTLS(listener, "", "")
		},
	}
	command.Flags().StringVar(&cluster, "cluster", "", "file to read")
	command.Flags().StringVar(&kubeconfig, "kubeconfig", "", "file to write")
	return command
}

// read loads the objects of a file. Kinds that are not served are left out.
func (s *store) read(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	paths := map[string]string{}
	for path, kind := range kinds {
		paths[kind.GroupVersion().String()+"/"+kind.Kind] = path
	}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 64<<20)
	for number := 1; lines.Scan(); number++ {
		text := bytes.TrimSuffix(bytes.TrimSpace(lines.Bytes()), []byte(","))
		var head struct{ APIVersion, Kind string }
		if json.Unmarshal(text, &head) != nil {
			continue // the first and the last line
		}
		if collection, served := paths[head.APIVersion+"/"+head.Kind]; served {
			if err := s.load(collection, text); err != nil {
				return fmt.Errorf("%s:%d: %w", path, number, err)
			}
		}
	}
	return lines.Err()
}

// target is what a URL names: a collection, or an object of it, or a subresource.
type target struct {
	path                         string // of the collection, without the namespace
	namespace, name, subresource string
	kind                         schema.GroupVersionKind
}

// parse returns the target of a URL path; false if it is not served.
func parse(path string) (target, bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	prefix := 2 // api/v1
	if parts[0] == "apis" {
		prefix = 3
	}
	if len(parts) <= prefix {
		return target{}, false
	}
	named, rest := target{}, parts[prefix:]
	if rest[0] == "namespaces" && len(rest) > 2 {
		named.namespace, rest = rest[1], rest[2:]
	}
	named.path = "/" + strings.Join(parts[:prefix], "/") + "/" + rest[0]
	if len(rest) > 1 {
		named.name = rest[1]
	}
	if len(rest) > 2 {
		named.subresource = rest[2]
	}
	kind, served := kinds[named.path]
	named.kind = kind
	return named, served
}
