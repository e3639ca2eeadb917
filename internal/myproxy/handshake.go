package myproxy

import (
	"bytes"
	"encoding/binary"
)

// handshake is what client and server have agreed upon before the first command.
type handshake struct {
	offered       uint32 // capabilities of the server
	deprecateEOF  bool
	cacheMetadata bool
}

// greeting takes the server's first packet, removes the capabilities that could not be
// followed, and returns the id of the connection.
func (h *handshake) greeting(payload []byte) (id uint32, err error) {
	version := bytes.IndexByte(payload, 0)
	// After the version: id 4, scramble 8, filler 1, capabilities 2, collation 1,
	// status 2, capabilities 2.
	if version < 0 || len(payload) < version+1+20 {
		return 0, errShort
	}
	rest := payload[version+1:]
	low, high := rest[13:15], rest[18:20]
	h.offered = uint32(binary.LittleEndian.Uint16(low)) | uint32(binary.LittleEndian.Uint16(high))<<16
	h.offered &^= unfollowed
	binary.LittleEndian.PutUint16(low, uint16(h.offered&0xffff))
	binary.LittleEndian.PutUint16(high, uint16(h.offered>>16))
	return binary.LittleEndian.Uint32(rest), nil
}

// response takes the client's first packet.
func (h *handshake) response(payload []byte) error {
	// Capabilities 4, packet size 4, collation 1, filler 19, extended capabilities 4.
	if len(payload) < 32 {
		return errShort
	}
	common := h.offered & binary.LittleEndian.Uint32(payload)
	h.deprecateEOF = common&deprecateEOF != 0
	h.cacheMetadata = common&mysqlCapability == 0 && binary.LittleEndian.Uint32(payload[28:])&cacheMetadata != 0
	return nil
}
