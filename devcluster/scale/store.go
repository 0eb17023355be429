package main

import (
	"fmt"
	"slices"
	"sort"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// keptEvents is the number of events per kind that are kept for watches; a watch that starts before them gets 410.
const keptEvents = 200_000

// event is a change of one object, for watches.
type event struct {
	verb   string // ADDED, MODIFIED or DELETED
	object *object
}

// collection contains the objects of one kind and their latest events.
type collection struct {
	kind    schema.GroupVersionKind
	objects map[string]*object
	keys    []string // sorted; nil after an addition or a removal
	events  []event
	forgot  uint64        // resourceVersion of the last event that is not kept
	changed chan struct{} // closed at the next event
}

// store contains all collections. One lock protects it. Objects are immutable, so they are sent to clients without it.
type store struct {
	sync.Mutex
	version     uint64
	collections map[string]*collection
}

func newStore() *store {
	s := &store{version: 1000, collections: map[string]*collection{}}
	for path, kind := range kinds {
		s.collections[path] = &collection{kind: kind, objects: map[string]*object{}, changed: make(chan struct{})}
	}
	return s
}

// put adds or replaces an object. The caller holds the lock.
func (s *store) put(path string, typed runtime.Object) (*object, error) {
	kept := s.collections[path]
	encoded, err := encode(kept.kind, typed, s.version+1)
	if err != nil {
		return nil, err
	}
	s.version++
	verb := "MODIFIED"
	if kept.objects[encoded.key()] == nil {
		verb, kept.keys = "ADDED", nil
	}
	kept.objects[encoded.key()] = encoded
	kept.note(event{verb, encoded})
	return encoded, nil
}

// remove deletes an object. The caller holds the lock.
func (s *store) remove(path string, removed *object) error {
	kept := s.collections[path]
	typed, err := decode(kept.kind, removed.json)
	if err != nil {
		return err
	}
	last, err := encode(kept.kind, typed, s.version+1)
	if err != nil {
		return err
	}
	s.version++
	delete(kept.objects, removed.key())
	kept.keys = nil
	kept.note(event{"DELETED", last})
	return nil
}

// load adds an object that existed before the first request, without an event.
func (s *store) load(path string, text []byte) error {
	kept := s.collections[path]
	typed, err := decode(kept.kind, text)
	if err != nil {
		return err
	}
	s.version++
	encoded, err := encode(kept.kind, typed, s.version)
	if err != nil {
		return err
	}
	kept.objects[encoded.key()], kept.forgot, kept.keys = encoded, s.version, nil
	return nil
}

func (c *collection) note(happened event) {
	if len(c.events) >= keptEvents {
		dropped := len(c.events) / 2
		c.forgot = c.events[dropped-1].object.version
		c.events = slices.Clone(c.events[dropped:])
	}
	c.events = append(c.events, happened)
	close(c.changed)
	c.changed = make(chan struct{})
}

// since returns the events after a resourceVersion, and a channel that is closed at the next one.
func (s *store) since(c *collection, version uint64) ([]event, <-chan struct{}, error) {
	s.Lock()
	defer s.Unlock()
	if version < c.forgot {
		return nil, nil, fmt.Errorf("too old resource version: %d (%d)", version, c.forgot)
	}
	first := sort.Search(len(c.events), func(i int) bool { return c.events[i].object.version > version })
	return c.events[first:len(c.events):len(c.events)], c.changed, nil
}

// page returns at most limit matching objects after a key, the key to continue from ("" at the end), and the store's
// resourceVersion. A limit of 0 means no limit.
func (s *store) page(c *collection, after string, limit int, matches func(*object) bool) ([]*object, string, uint64) {
	s.Lock()
	defer s.Unlock()
	if c.keys == nil {
		c.keys = make([]string, 0, len(c.objects))
		for key := range c.objects {
			c.keys = append(c.keys, key)
		}
		slices.Sort(c.keys)
	}
	var chosen []*object
	for _, key := range c.keys[sort.Search(len(c.keys), func(i int) bool { return c.keys[i] > after }):] {
		if limit > 0 && len(chosen) == limit {
			return chosen, chosen[limit-1].key(), s.version
		}
		if kept := c.objects[key]; matches(kept) {
			chosen = append(chosen, kept)
		}
	}
	return chosen, "", s.version
}
