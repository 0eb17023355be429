package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// informersCommand watches the kinds that the daemon watches, in protobuf, and does nothing else.
func informersCommand() *cobra.Command {
	var kubeconfig string
	command := &cobra.Command{
		Use:   "informers",
		Short: "Watch the kinds that the daemon watches, and print a line when all are synced",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			clients, err := connect(kubeconfig)
			if err != nil {
				return err
			}
			factory := informers.NewSharedInformerFactory(clients, 0)
			synced := []cache.InformerSynced{}
			for _, informer := range informersOf(factory) {
				synced = append(synced, informer.HasSynced)
			}
			factory.Start(command.Context().Done())
			if !cache.WaitForCacheSync(command.Context().Done(), synced...) {
				return errors.New("the caches did not sync")
			}
			fmt.Printf("synced %d pods\n", len(factory.Core().V1().Pods().Informer().GetStore().ListKeys()))
			<-command.Context().Done()
			return nil
		},
	}
	command.Flags().StringVar(&kubeconfig, "kubeconfig", "", "path of the kubeconfig")
	return command
}

// connect returns clients that send and receive protobuf, without a client-side rate limit.
func connect(kubeconfig string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.ContentType = protobufType
	config.AcceptContentTypes = protobufType + ",application/json"
	config.QPS, config.Burst = 1000, 1000
	return kubernetes.NewForConfig(config)
}

func informersOf(factory informers.SharedInformerFactory) []cache.SharedIndexInformer {
	core, storage, resource := factory.Core().V1(), factory.Storage().V1(), factory.Resource().V1()
	return []cache.SharedIndexInformer{
		core.Namespaces().Informer(),
		core.Nodes().Informer(),
		storage.StorageClasses().Informer(),
		core.PersistentVolumes().Informer(),
		core.PersistentVolumeClaims().Informer(),
		storage.CSINodes().Informer(),
		storage.CSIDrivers().Informer(),
		storage.CSIStorageCapacities().Informer(),
		storage.VolumeAttachments().Informer(),
		resource.ResourceClaims().Informer(),
		resource.DeviceClasses().Informer(),
		factory.Policy().V1().PodDisruptionBudgets().Informer(),
		core.Pods().Informer(),
	}
}
