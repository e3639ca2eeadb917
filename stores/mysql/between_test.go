package mysql_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

// between stands between clients and a server, and makes another text of each statement, or
// refuses it as a server does that does not know it (1235). It returns its address.
func between(tb testing.TB, server string, rewrite func(text string) (string, error)) string {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", server)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(client, upstream)
				_ = client.Close()
			}()
			go func() {
				for err := error(nil); err == nil; {
					err = pass(client, upstream, rewrite)
				}
				_ = upstream.Close()
			}()
		}
	}()
	return listener.Addr().String()
}

// pass reads one packet of a client's. A command is the first of its packets.
func pass(client io.ReadWriter, upstream io.Writer, rewrite func(string) (string, error)) error {
	const query, prepare, whole = 0x03, 0x16, 1<<24 - 1
	var header [4]byte
	if _, err := io.ReadFull(client, header[:]); err != nil {
		return err
	}
	length := int(header[0]) | int(header[1])<<8 | int(header[2])<<16
	payload := make([]byte, length)
	if _, err := io.ReadFull(client, payload); err != nil {
		return err
	}
	if header[3] == 0 && length > 0 && length < whole && (payload[0] == query || payload[0] == prepare) {
		text, err := rewrite(string(payload[1:]))
		if err != nil {
			number := uint16(1235)
			if as, ok := errors.AsType[*driver.MySQLError](err); ok {
				number = as.Number
			}
			refusal := append(binary.LittleEndian.AppendUint16([]byte{0xff}, number), "#42000"+err.Error()...)
			_, err = client.Write(packet(1, refusal))
			return err
		}
		payload = append(payload[:1:1], text...)
	}
	if len(payload) >= whole && length != len(payload) {
		return errors.New("the text has grown too long for one packet")
	}
	_, err := upstream.Write(packet(header[3], payload))
	return err
}

func packet(sequence byte, payload []byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(payload)))
	b[3] = sequence
	return append(b, payload...)
}
