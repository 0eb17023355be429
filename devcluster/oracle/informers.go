package main

import (
	"context"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/apps"
	"k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/informers/policy"
	"k8s.io/client-go/informers/resource"
	"k8s.io/client-go/informers/scheduling"
	"k8s.io/client-go/informers/storage"
	"k8s.io/client-go/tools/cache"
)

// stores is an informer factory for a fixed set of objects: it does not list or watch and starts no goroutines, and a
// handler gets every object before AddEventHandler returns. Creating a framework takes about a millisecond with it, and
// a hundred with a fake clientset and its watches.
//
// The embedded interface is nil: a plugin that uses an API group that is not overridden below panics, and the answer
// reports it.
type stores struct {
	informers.SharedInformerFactory
	of map[reflect.Type]*store
}

func newStores(objects []runtime.Object) (*stores, error) {
	s := &stores{of: map[reflect.Type]*store{}}
	for _, object := range objects {
		if err := s.storeFor(object).indexer.Add(object); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *stores) storeFor(object runtime.Object) *store {
	kind := reflect.TypeOf(object)
	if s.of[kind] == nil {
		indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		s.of[kind] = &store{indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers)}
	}
	return s.of[kind]
}

func (s *stores) InformerFor(object runtime.Object, _ internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	return s.storeFor(object)
}

func (s *stores) Start(<-chan struct{})            {}
func (s *stores) StartWithContext(context.Context) {}
func (s *stores) Shutdown()                        {}
func (s *stores) Apps() apps.Interface             { return apps.New(s, "", nil) }
func (s *stores) Core() core.Interface             { return core.New(s, "", nil) }
func (s *stores) Policy() policy.Interface         { return policy.New(s, "", nil) }
func (s *stores) Resource() resource.Interface     { return resource.New(s, "", nil) }
func (s *stores) Scheduling() scheduling.Interface { return scheduling.New(s, "", nil) }
func (s *stores) Storage() storage.Interface       { return storage.New(s, "", nil) }

// store is the informer of one kind.
type store struct {
	cache.SharedIndexInformer
	indexer cache.Indexer
}

func (s *store) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	for _, object := range s.indexer.List() {
		handler.OnAdd(object, true)
	}
	return synced{}, nil
}

func (s *store) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, _ cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandler(handler)
}

func (s *store) AddIndexers(indexers cache.Indexers) error { return s.indexer.AddIndexers(indexers) }
func (s *store) GetIndexer() cache.Indexer                 { return s.indexer }
func (s *store) GetStore() cache.Store                     { return s.indexer }
func (s *store) HasSynced() bool                           { return true }
func (s *store) LastSyncResourceVersion() string           { return "" }

var closed = func() chan struct{} {
	channel := make(chan struct{})
	close(channel)
	return channel
}()

type synced struct{}

func (synced) Name() string          { return "snapshot" }
func (synced) Done() <-chan struct{} { return closed }
func (synced) HasSynced() bool       { return true }
