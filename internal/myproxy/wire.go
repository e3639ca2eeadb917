package myproxy

import (
	"encoding/binary"
	"errors"
)

const (
	headerBytes    = 4         // length and sequence number
	maxPacketBytes = 1<<24 - 1 // of payload; what is longer goes on in the next packet
)

// Commands that the proxy knows, by the first byte of their payload.
const (
	quitCommand        = 0x01
	initDBCommand      = 0x02
	queryCommand       = 0x03
	fieldListCommand   = 0x04
	statisticsCommand  = 0x09
	processKillCommand = 0x0c
	debugCommand       = 0x0d
	pingCommand        = 0x0e
	changeUserCommand  = 0x11
	prepareCommand     = 0x16
	executeCommand     = 0x17
	longDataCommand    = 0x18
	closeCommand       = 0x19
	resetStmtCommand   = 0x1a
	setOptionCommand   = 0x1b
	resetConnCommand   = 0x1f
	bulkExecuteCommand = 0xfa // MariaDB
)

// Beginnings of the server's packets. What they mean depends on what may come.
const (
	okPacket       = 0x00
	moreAuthPacket = 0x01
	localFile      = 0xfb
	eofPacket      = 0xfe // also a request for another method of authentication
	errPacket      = 0xff
)

// Capabilities that matter.
const (
	mysqlCapability     = 1 << 0 // without it there are extended ones, of MariaDB
	compressCapability  = 1 << 5
	sslCapability       = 1 << 11
	deprecateEOF        = 1 << 24
	zstdCapability      = 1 << 26
	attributeCapability = 1 << 27 // attributes come before the text of a query

	cacheMetadata = 1 << 4 // extended: definitions of columns may be left out

	// unfollowed are those that clients are told the server does not have.
	unfollowed = compressCapability | sslCapability | zstdCapability | attributeCapability
)

// Status flags.
const (
	inTransaction = 1 << 0
	moreResults   = 1 << 3
)

// deadlockError is the error with which the server has rolled back the transaction.
const deadlockError = 1213

var errShort = errors.New("myproxy: a packet is too short")

// integer reads a length-encoded integer and returns what follows it.
func integer(b []byte) (n uint64, rest []byte, err error) {
	if len(b) == 0 {
		return 0, nil, errShort
	}
	var size int
	switch b[0] {
	case 0xfc:
		size = 2
	case 0xfd:
		size = 3
	case 0xfe:
		size = 8
	default:
		return uint64(b[0]), b[1:], nil
	}
	if len(b) < 1+size {
		return 0, nil, errShort
	}
	var whole [8]byte
	copy(whole[:], b[1:1+size])
	return binary.LittleEndian.Uint64(whole[:]), b[1+size:], nil
}

// okStatus returns the status flags of an OK packet, whatever its first byte.
func okStatus(payload []byte) (uint16, error) {
	_, rest, err := integer(payload[1:]) // affected rows
	if err == nil {
		_, rest, err = integer(rest) // last id
	}
	if err != nil || len(rest) < 2 {
		return 0, errShort
	}
	return binary.LittleEndian.Uint16(rest), nil
}

// eofStatus returns the status flags of an EOF packet.
func eofStatus(payload []byte) (uint16, error) {
	if len(payload) < 5 {
		return 0, errShort
	}
	return binary.LittleEndian.Uint16(payload[3:]), nil
}
