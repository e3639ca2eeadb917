package memory

import (
	"bytes"
	"container/list"
	"maps"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// topic keeps the messages of one topic and hands them to its groups.
type topic struct {
	name   string
	config Config

	mu      sync.Mutex // guards everything below, and all groups
	last    uint64     // sequence number of the newest message
	held    list.List  // every *entry with a place, oldest first
	settled list.List  // those that all groups have settled, in the order of settling
	groups  map[string]*group
	room    chan struct{} // closed when a place may be free; nil without waiters
}

// entry is a published message. After publishing only open and place change, guarded by the topic.
type entry struct {
	uuid     string
	metadata message.Metadata
	payload  []byte
	key      []byte
	id       string
	at       time.Time

	seq   uint64
	open  int // groups that have not settled it
	place *list.Element
}

func newTopic(name string, config Config) *topic {
	return &topic{name: name, config: config, groups: make(map[string]*group)}
}

// newEntry copies msg, which stays the caller's.
func newEntry(msg *message.Message, id, keyMetadata string) *entry {
	e := &entry{
		uuid:     msg.UUID,
		metadata: maps.Clone(msg.Metadata),
		payload:  bytes.Clone(msg.Payload),
		id:       id,
		at:       time.Now(),
	}
	if value, ok := msg.Metadata[keyMetadata]; ok && keyMetadata != "" {
		e.key = []byte(value)
	}
	return e
}

// message returns a copy that shares nothing with the entry.
func (e *entry) message() *message.Message {
	msg := message.NewMessage(e.uuid, bytes.Clone(e.payload))
	maps.Copy(msg.Metadata, e.metadata)
	return msg
}

// publish stores e and returns nil. If there is no place it stores nothing, and returns a channel
// that is closed when another try may succeed.
func (t *topic) publish(e *entry) (room <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held.Len() >= t.config.Capacity {
		oldest := t.settled.Front()
		if oldest == nil {
			if t.room == nil {
				t.room = make(chan struct{})
			}
			return t.room
		}
		t.settled.Remove(oldest)
		t.held.Remove(oldest.Value.(*entry).place)
	}
	t.last++
	e.seq = t.last
	e.place = t.held.PushBack(e)
	for _, g := range t.groups {
		g.add(e)
	}
	return nil
}

// join returns the group with that name. A new group gets all held messages, which are then no
// longer settled by all groups. t.mu must be held.
func (t *topic) join(name string) *group {
	if g := t.groups[name]; g != nil {
		return g
	}
	g := newGroup(t)
	t.groups[name] = g
	t.settled.Init()
	for place := t.held.Front(); place != nil; place = place.Next() {
		g.add(place.Value.(*entry))
	}
	return g
}

// settle notes that one more group is done with e. t.mu must be held.
func (t *topic) settle(e *entry) {
	e.open--
	if e.open > 0 {
		return
	}
	t.settled.PushBack(e)
	if t.room != nil {
		close(t.room)
		t.room = nil
	}
}

func (t *topic) stopTimers() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.groups {
		for it, timer := range g.delayed {
			timer.Stop()
			delete(g.delayed, it)
		}
	}
}
