package main

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
)

//go:embed corpus
var corpusFiles embed.FS

// A kind is one resource of the corpus. Its objects are not kept: object i is rendered from a template whenever it is sent, the same
// every time but for its version and the time of its last event, so the server is small and fast at any number of objects.
type kind struct {
	group, version, plural, kind string
	full, metadata, listed       template // listed: as an item of a typed list
}

// A template is compact JSON, cut where a value goes: text[0] value[0] text[1] value[1] …
type template struct {
	text  []string
	value []string
}

var placeholder = regexp.MustCompile(`\{([a-z]+)\}`)

func newTemplate(text []byte) template {
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		panic(err)
	}
	var t template
	at, whole := 0, compact.String()
	for _, m := range placeholder.FindAllStringSubmatchIndex(whole, -1) {
		t.text = append(t.text, whole[at:m[0]])
		t.value = append(t.value, whole[m[2]:m[3]])
		at = m[1]
	}
	t.text = append(t.text, whole[at:])
	return t
}

func newKind(group, version, plural, name, file string) *kind {
	text, err := corpusFiles.ReadFile("corpus/" + file)
	if err != nil {
		panic(err)
	}
	var object struct {
		Metadata json.RawMessage `json:"metadata"`
		Spec     json.RawMessage `json:"spec"`
		Status   json.RawMessage `json:"status"`
	}
	if err := json.Unmarshal(text, &object); err != nil {
		panic(err)
	}
	k := &kind{group: group, version: version, plural: plural, kind: name, full: newTemplate(text)}
	k.metadata = newTemplate(fmt.Appendf(nil, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":%s}`, object.Metadata))
	k.listed = k.full
	if group == "" { // lists of built-in kinds leave out what the list's own kind says
		k.listed = newTemplate(fmt.Appendf(nil, `{"metadata":%s,"spec":%s,"status":%s}`, object.Metadata, object.Spec, object.Status))
	}
	return k
}

func (k *kind) apiVersion() string {
	if k.group == "" {
		return k.version
	}
	return k.group + "/" + k.version
}

func (k *kind) basePath() string {
	if k.group == "" {
		return "/api/" + k.version
	}
	return "/apis/" + k.group + "/" + k.version
}

// render appends object `index` in its given version to `out`. `sent` is what its annotation says, in ns since 1970.
func (t *template) render(out []byte, index int, version uint64, sent int64) []byte {
	for i, value := range t.value {
		out = append(out, t.text[i]...)
		out = appendValue(out, value, index, version, sent)
	}
	return append(out, t.text[len(t.text)-1]...)
}

const (
	seed        = 20261121
	podsPerApp  = 10
	appsPerTeam = 50
	nodes       = 200
)

func appendValue(out []byte, name string, index int, version uint64, sent int64) []byte {
	app := index / podsPerApp
	switch name {
	case "version":
		return strconv.AppendUint(out, version, 10)
	case "sent":
		return strconv.AppendInt(out, sent, 10)
	case "app":
		return fmt.Appendf(out, "web-%05d", app)
	case "namespace":
		return fmt.Appendf(out, "team-%02d", app/appsPerTeam%100)
	case "name":
		return fmt.Appendf(out, "web-%05d-%s-%s", app, hex(app, 1, 10), hex(index, 2, 5))
	case "hash":
		return append(out, hex(app, 1, 10)...)
	case "uid":
		return appendUID(out, index, 3)
	case "owner":
		return appendUID(out, app, 4)
	case "digest":
		return append(out, hex(app, 5, 64)...)
	case "container":
		return append(out, hex(index, 6, 64)...)
	case "node":
		return fmt.Appendf(out, "node-%03d", index%nodes)
	case "hostip":
		return fmt.Appendf(out, "10.0.%d.%d", index%nodes/100, index%nodes%100+1)
	case "ip":
		return fmt.Appendf(out, "10.%d.%d.%d", 64+index>>16, index>>8&255, index&255)
	}
	panic("the corpus has no value for {" + name + "}")
}

func appendUID(out []byte, index, stream int) []byte {
	h := hex(index, stream, 32)
	return fmt.Appendf(out, "%s-%s-4%s-a%s-%s", h[:8], h[8:12], h[13:16], h[17:20], h[20:])
}

// hex returns the first n hex digits of a random stream that depends on its arguments only (splitmix64).
func hex(index, stream, n int) []byte {
	const digits = "0123456789abcdef"
	out := make([]byte, n)
	state := uint64(seed) + uint64(index)*0x632be59bd9b4e019 + uint64(stream)*0x9e6c63d0876a9a47
	var word uint64
	for i := range out {
		if i%16 == 0 {
			state += 0x9e3779b97f4a7c15
			word = (state ^ state>>30) * 0xbf58476d1ce4e5b9
			word = (word ^ word>>27) * 0x94d049bb133111eb
			word ^= word >> 31
		}
		out[i] = digits[word>>(4*(i%16))&15]
	}
	return out
}
