// render prints the manifests of deploy/, rendered with the engines of Helm and of kustomize:
//
//	render chart FOLDER RELEASE NAMESPACE < values.yaml
//	render kustomization FOLDER
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
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// The version of the local control plane; charts may ask for it.
const kubernetes = "v1.36.3"

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string, in io.Reader, out io.Writer) error {
	switch {
	case len(arguments) == 4 && arguments[0] == "chart":
		return chart(arguments[1], arguments[2], arguments[3], in, out)
	case len(arguments) == 2 && arguments[0] == "kustomization":
		return kustomization(arguments[1], out)
	}
	return fmt.Errorf("usage: render chart FOLDER RELEASE NAMESPACE < VALUES | render kustomization FOLDER")
}

func chart(folder, release, namespace string, in io.Reader, out io.Writer) error {
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
	rendered, err := engine.Engine{Strict: true}.Render(loaded, values)
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
