// Command scale contains the programs that `make scale` runs beside the daemon:
//
//	scale serve      a stand-in API server that serves a generated cluster from memory
//	scale informers  the shared informers of client-go, as a peer of the daemon's watches
//	scale churn      changes pods of a cluster at a set rate
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	root := &cobra.Command{Use: "scale", SilenceUsage: true}
	root.AddCommand(serveCommand(), informersCommand(), churnCommand())
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
