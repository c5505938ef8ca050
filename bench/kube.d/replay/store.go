package main

import (
	"sort"
	"sync"
)

// A store is the state of one kind: which version each object has, and the changes that a watch may still ask for.
type store struct {
	*kind
	mu        sync.Mutex
	versions  []uint64
	sent      []int64
	latest    uint64
	compacted uint64        // a watch from an older version than this is answered with 410
	log       []change      // since `compacted`, oldest first
	epoch     int           // grows when all watches are to end with 410
	changed   chan struct{} // closed and replaced at every change of what is above
	counts    counts
}

type change struct {
	index   int
	version uint64
}

type counts struct {
	Lists        int            `json:"lists"`        // LIST calls, the first page of each
	Pages        int            `json:"pages"`        // LIST requests
	Watches      int            `json:"watches"`      // WATCH requests
	Snapshots    int            `json:"snapshots"`    // lists or streamed lists sent to their end
	Expired      int            `json:"expired"`      // 410s sent
	Events       int            `json:"events"`       // MODIFIEDs sent
	Protocols    map[string]int `json:"protocols"`    // requests by HTTP version
	Metadata     int            `json:"metadata"`     // requests answered as PartialObjectMetadata
	WatchQueries []string       `json:"watchQueries"` // of the first few watches
}

const firstVersion = 1000

func newStore(k *kind, objects int) *store {
	s := &store{kind: k, versions: make([]uint64, objects), sent: make([]int64, objects), changed: make(chan struct{})}
	s.counts.Protocols = map[string]int{}
	for i := range s.versions {
		s.versions[i] = firstVersion + uint64(i)
	}
	s.latest = firstVersion + uint64(objects)
	s.compacted = s.latest
	return s
}

func (s *store) wakeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// touch gives object `index` a new version at the time `now`.
func (s *store) touch(index int, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest++
	s.versions[index], s.sent[index] = s.latest, now
	s.log = append(s.log, change{index, s.latest})
	s.wakeLocked()
}

// expire forgets the log, and ends all watches with 410. Meanwhile every `every`-th object has changed.
func (s *store) expire(every int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := 0; i < len(s.versions); i += every {
		s.latest++
		s.versions[i] = s.latest
	}
	s.log = nil
	s.compacted = s.latest
	s.epoch++
	s.wakeLocked()
}

// A snapshot is what a list shows, and where a watch goes on after it.
type snapshot struct {
	versions []uint64
	sent     []int64
	latest   uint64
}

func (s *store) snapshot() snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return snapshot{append([]uint64(nil), s.versions...), append([]int64(nil), s.sent...), s.latest}
}

// after returns the changes after `version`, the newest version, the epoch, and a channel that is closed when there is more.
func (s *store) after(version uint64) (changes []change, latest uint64, epoch int, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := sort.Search(len(s.log), func(i int) bool { return s.log[i].version > version })
	return s.log[first:len(s.log):len(s.log)], s.latest, s.epoch, s.changed
}

func (s *store) count(update func(c *counts)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	update(&s.counts)
}
