// render prints the manifests of deploy/, rendered with the engines of Helm and of kustomize:
//
//	render chart FOLDER RELEASE NAMESPACE [SERVER CA TOKEN] < values.yaml
//	render kustomization FOLDER
//
// With the address of an API server, the file with its CA, and a token, the chart can look up objects, as in an upgrade.
package main

import (
	"fmt"
	"io"
	"os"
	"path"
	"sort"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// The version of the local control plane; charts may ask for it.
const kubernetes = "v1.37.2"

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string, in io.Reader, out io.Writer) error {
	switch {
	case len(arguments) == 4 && arguments[0] == "chart":
		return chart(arguments[1], arguments[2], arguments[3], nil, in, out)
	case len(arguments) == 7 && arguments[0] == "chart":
		cluster := &rest.Config{Host: arguments[4], BearerToken: arguments[6]}
		cluster.TLSClientConfig.CAFile = arguments[5]
		return chart(arguments[1], arguments[2], arguments[3], cluster, in, out)
	case len(arguments) == 2 && arguments[0] == "kustomization":
		return kustomization(arguments[1], out)
	}
	return fmt.Errorf("usage: render chart FOLDER RELEASE NAMESPACE [SERVER CA TOKEN] < VALUES | render kustomization FOLDER")
}

func chart(folder, release, namespace string, cluster *rest.Config, in io.Reader, out io.Writer) error {
	read, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	given, err := chartutil.ReadValues(read)
	if err != nil {
		return err
	}
	loaded, err := loader.Load(folder)
	if err != nil {
		return err
	}
	version, err := chartutil.ParseKubeVersion(kubernetes)
	if err != nil {
		return err
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *version
	if !chartutil.IsCompatibleRange(loaded.Metadata.KubeVersion, version.Version) {
		return fmt.Errorf("the chart is not for Kubernetes %s", kubernetes)
	}
	options := chartutil.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}
	values, err := chartutil.ToRenderValues(loaded, given, options, capabilities)
	if err != nil {
		return err
	}
	templates := engine.Engine{Strict: true}
	if cluster != nil {
		templates = engine.New(cluster)
		templates.Strict = true
	}
	rendered, err := templates.Render(loaded, values)
	if err != nil {
		return err
	}
	names := make([]string, 0, len(rendered))
	for name := range rendered {
		if path.Ext(name) == ".yaml" {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Fprintf(out, "---\n# %s\n%s\n", name, rendered[name])
	}
	return nil
}

func kustomization(folder string, out io.Writer) error {
	found, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		return err
	}
	text, err := found.AsYaml()
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}
