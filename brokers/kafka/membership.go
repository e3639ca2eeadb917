package kafka

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// membership tracks the client's group, as a hook of the client.
type membership struct {
	patience, joinPatience time.Duration

	mu      sync.Mutex
	heard   time.Time // when the group last answered; zero: not yet
	joining bool      // the group is rebalancing, and answers afterwards
	member  bool      // a heartbeat was answered since then
	lost    error     // why the group removed this member, until it is a member again
}

var (
	_ kgo.HookBrokerWrite      = (*membership)(nil)
	_ kgo.HookBrokerE2E        = (*membership)(nil)
	_ kgo.HookGroupManageError = (*membership)(nil)
)

func newMembership(c *Consume) *membership {
	return &membership{patience: c.SessionTimeout, joinPatience: rebalanceTimeout(c) + c.SessionTimeout}
}

var (
	join              = kmsg.JoinGroup.Int16()
	syncGroup         = kmsg.SyncGroup.Int16()
	heartbeat         = kmsg.Heartbeat.Int16()
	consumerHeartbeat = kmsg.ConsumerGroupHeartbeat.Int16()
)

// OnBrokerWrite implements kgo.HookBrokerWrite.
func (m *membership) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if key != join && key != syncGroup || err != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.joining = true
}

// OnBrokerE2E implements kgo.HookBrokerE2E. It does not know what the answer says: a refusal
// follows in OnGroupManageError.
func (m *membership) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if e2e.Err() != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch key {
	case join, syncGroup:
		m.heard, m.joining = time.Now(), false
	case heartbeat, consumerHeartbeat:
		m.heard, m.member, m.joining, m.lost = time.Now(), true, false, nil
	}
}

// OnGroupManageError implements kgo.HookGroupManageError.
func (m *membership) OnGroupManageError(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lost, m.member = err, false
}

var errNotJoined = errors.New("it has not joined the group yet")

// problem returns why this member can receive nothing, or nil.
func (m *membership) problem() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	patience := m.patience
	if m.joining {
		patience = m.joinPatience
	}
	switch silent := time.Since(m.heard); {
	case m.lost != nil:
		return fmt.Errorf("the group has lost this member: %w", m.lost)
	case !m.member:
		return errNotJoined
	case silent > patience:
		return fmt.Errorf("the group has not answered for %s, and has given this member up", silent.Round(time.Second))
	}
	return nil
}
