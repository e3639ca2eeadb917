package kafka

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// With several messages of a partition in flight, some are settled before an earlier one. With the
// offset alone they would be redelivered when the partition moves, so the metadata of the commit
// lists them: one bit for each offset from the committed one on. Other clients ignore the metadata,
// and overwrite it.
//
// If the broker has lost the end of the log, an offset may belong to another message. That
// message's leader epoch is later than any lost one's, which tells them apart.

const (
	aheadVersion = "millpond3"
	aheadBegun   = "rest-begun" // the others may have begun
	aheadUnbegun = "rest-unbegun"
	// maxAhead bounds the bits: 1 KiB of the 4 KiB that a broker accepts by default.
	maxAhead = 8 << 10
)

var errAhead = errors.New("kafka: the metadata of the committed offset is not ours")

// ahead says which offsets from base on are settled.
type ahead struct {
	base  int64
	epoch int32 // the latest leader epoch of the settled messages
	bits  []byte

	restUnbegun bool // no owner has begun the others: see handover.go
}

func (a *ahead) add(r *kgo.Record) {
	i := r.Offset - a.base
	if i < 0 || i >= maxAhead {
		return
	}
	a.epoch = max(a.epoch, r.LeaderEpoch)
	for int64(len(a.bits)) <= i/8 {
		a.bits = append(a.bits, 0)
	}
	a.bits[i/8] |= 1 << (i % 8)
}

func (a ahead) has(r *kgo.Record) bool {
	i := r.Offset - a.base
	return r.LeaderEpoch <= a.epoch && i >= 0 && i/8 < int64(len(a.bits)) && a.bits[i/8]&(1<<(i%8)) != 0
}

// encode returns the metadata for a commit of base. It includes the topic's id, because a topic
// that is created again has other messages at the same offsets.
func (a ahead) encode(topic kadm.TopicID) string {
	if len(a.bits) == 0 && !a.restUnbegun || topic == (kadm.TopicID{}) {
		return ""
	}
	rest := aheadBegun
	if a.restUnbegun {
		rest = aheadUnbegun
	}
	return strings.Join([]string{aheadVersion, topic.String(), fmt.Sprint(a.base), fmt.Sprint(a.epoch), base64.RawStdEncoding.EncodeToString(a.bits), rest}, " ")
}

// decodeAhead reads what encode wrote for the same topic and offset.
func decodeAhead(metadata string, topic kadm.TopicID, offset int64) (ahead, error) {
	a := ahead{base: offset}
	parts := strings.Split(metadata, " ")
	if len(parts) != 6 || parts[0] != aheadVersion || topic == (kadm.TopicID{}) || parts[1] != topic.String() || parts[2] != fmt.Sprint(offset) {
		return a, errAhead
	}
	epoch, err := strconv.ParseInt(parts[3], 10, 32)
	if err != nil {
		return a, errAhead
	}
	if parts[5] != aheadBegun && parts[5] != aheadUnbegun {
		return a, errAhead
	}
	bits, err := base64.RawStdEncoding.DecodeString(parts[4])
	if err != nil || len(bits) > maxAhead/8 {
		return a, errAhead
	}
	a.epoch, a.bits, a.restUnbegun = int32(epoch), bits, parts[5] == aheadUnbegun
	return a, nil
}

// fetched is called by the client, with the start offsets, after partitions are assigned and before
// they are first fetched.
func (s *session) fetched(ctx context.Context, _ *kgo.Client, response *kmsg.OffsetFetchResponse) error {
	ends := s.ends(ctx)
	for _, group := range response.Groups {
		for _, topic := range group.Topics {
			if topic.Topic != s.topic && kadm.TopicID(topic.TopicID) != s.id {
				continue
			}
			for _, answer := range topic.Partitions {
				p := s.owned.one(answer.Partition)
				if p == nil {
					continue
				}
				p.suspectBefore(ends)
				var settled ahead
				if answer.Metadata != nil {
					settled, _ = decodeAhead(*answer.Metadata, s.id, answer.Offset) // another client's metadata has none
				}
				p.takeOver(kgo.EpochOffset{Epoch: answer.LeaderEpoch, Offset: answer.Offset}, settled)
			}
		}
	}
	return nil
}
