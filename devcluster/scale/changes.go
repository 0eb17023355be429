package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// writers is the maximum number of concurrent changes.
const writers = 16

// changer changes pods of a cluster through its API.
type changer struct {
	clients kubernetes.Interface
	pods    []corev1.Pod
}

// churnCommand changes pods like the stand-in's churn, but of any API server.
func churnCommand() *cobra.Command {
	var kubeconfig, kind string
	var rate, seconds int
	var seed uint64
	command := &cobra.Command{
		Use:   "churn",
		Short: "Change pods at a set rate of events, and print the number of events and the seconds as JSON",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			clients, err := connect(kubeconfig)
			if err != nil {
				return err
			}
			changer := &changer{clients: clients}
			if err := changer.read(command.Context(), seed); err != nil {
				return err
			}
			change, eventsOfChange := changer.touch, 1
			if kind == "turnover" {
				change, eventsOfChange = changer.turnOver, turnoverEvents
			}
			began := time.Now()
			changes := rate * seconds / eventsOfChange
			if err := changer.run(command.Context(), changes, time.Duration(eventsOfChange)*time.Second/time.Duration(rate), change); err != nil {
				return err
			}
			return json.NewEncoder(os.Stdout).Encode(churned{changes * eventsOfChange, time.Since(began).Seconds()})
		},
	}
	command.Flags().StringVar(&kubeconfig, "kubeconfig", "", "path of the kubeconfig")
	command.Flags().StringVar(&kind, "kind", "status", "status or turnover")
	command.Flags().IntVar(&rate, "rate", 100, "events per second")
	command.Flags().IntVar(&seconds, "seconds", 30, "duration")
	command.Flags().Uint64Var(&seed, "seed", 1, "of the choice of pods")
	return command
}

func (c *changer) read(ctx context.Context, seed uint64) error {
	list, err := c.clients.CoreV1().Pods("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	c.pods = list.Items
	rng := rand.New(rand.NewPCG(seed, 1))
	rng.Shuffle(len(c.pods), func(i, j int) { c.pods[i], c.pods[j] = c.pods[j], c.pods[i] })
	return nil
}

// run makes one change per interval, each to a different pod.
func (c *changer) run(ctx context.Context, changes int, interval time.Duration, change func(context.Context, *corev1.Pod, int) error) error {
	if changes > len(c.pods) {
		return fmt.Errorf("%d changes of %d pods", changes, len(c.pods))
	}
	began, numbers, failures := time.Now(), make(chan int), make(chan error, changes)
	var running sync.WaitGroup
	for range writers {
		running.Go(func() {
			for number := range numbers {
				failures <- change(ctx, &c.pods[number], number)
			}
		})
	}
	for number := range changes {
		time.Sleep(time.Until(began.Add(time.Duration(number) * interval)))
		numbers <- number
	}
	close(numbers)
	running.Wait()
	close(failures)
	var all error
	for failure := range failures {
		all = errors.Join(all, failure)
	}
	return all
}

// touch changes an annotation.
func (c *changer) touch(ctx context.Context, pod *corev1.Pod, number int) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/touched":"%d"}}}`, number)
	_, err := c.clients.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// turnOver replaces a pod by a copy on the same node with the same status.
func (c *changer) turnOver(ctx context.Context, pod *corev1.Pod, _ int) error {
	pods, now := c.clients.CoreV1().Pods(pod.Namespace), int64(0)
	if err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		return err
	}
	created := pod.DeepCopy()
	created.ResourceVersion, created.UID = "", ""
	created.Name = fmt.Sprintf("%s%05x", pod.GenerateName, rand.Uint32N(1<<20))
	created, err := pods.Create(ctx, created, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	created.Status = pod.Status
	_, err = pods.UpdateStatus(ctx, created, metav1.UpdateOptions{})
	return err
}
