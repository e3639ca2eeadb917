package keys

import "errors"

// ErrNotAnID: the text does not come from Format.
var ErrNotAnID = errors.New("keys: not a message id: write it as it is shown, beginning with its kind, such as u:… or h:…")

// Parse returns the stored id for a text of [Format]. A scope's value ends at the first space
// that another scope or the kind may follow, so the text of an id whose scope contains such a
// space is read as another id: there the bytes of the id must be used.
func Parse(text string) ([]byte, error) {
	var id []byte
	for after(text, 0) == '=' {
		end := len("c=") // the end of the scope, before the space
		for end < len(text) && (text[end] != ' ' || after(text, end+1) == 0) {
			end++
		}
		if end == len(text) {
			return nil, ErrNotAnID
		}
		id = appendSegment(id, text[0], text[len("c="):end])
		text = text[end+1:]
	}
	if after(text, 0) != ':' {
		return nil, ErrNotAnID
	}
	kind, value := text[0], text[len("u:"):]
	if short, ok := packUUID(value); ok {
		return append(append(id, kind, '#'), short[:]...), nil
	}
	return append(append(id, kind, ':'), value...), nil
}

// after returns the character after the letter at i: '=' if a scope begins there, ':' if the kind
// begins there, else 0.
func after(text string, i int) byte {
	if i+1 < len(text) && 'a' <= text[i] && text[i] <= 'z' && (text[i+1] == '=' || text[i+1] == ':') {
		return text[i+1]
	}
	return 0
}
