package kafka

import (
	"fmt"
	"path/filepath"
)

// PartitionLog returns the path of the file with the first messages of a partition, for
// tests that damage it. The broker must not run meanwhile.
func (s *Server) PartitionLog(topic string, partition int) string {
	return filepath.Join(s.Dir(), dataDir, fmt.Sprintf("%s-%d", topic, partition), "00000000000000000000.log")
}
