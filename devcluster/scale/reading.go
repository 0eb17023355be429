package main

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// bookmarkInterval is the bookmark interval of the API server.
const bookmarkInterval = time.Minute

// list serves one page. All objects are already encoded, so a page is a concatenation.
func (s *server) list(w http.ResponseWriter, r *http.Request, named target) {
	query := r.URL.Query()
	matches, err := selected(named, query.Get("fieldSelector"))
	if err != nil {
		s.refuse(w, r, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	limit := asNumber(query.Get("limit"))
	if query.Get("resourceVersion") == "0" {
		limit = 0 // the API server serves such lists from its watch cache, as a whole
	}
	// All pages of a list have the resourceVersion of the first page: the watch delivers later changes.
	var token struct {
		After   string
		Version uint64
	}
	if given := query.Get("continue"); given != "" {
		decoded, err := base64.URLEncoding.DecodeString(given)
		if err != nil || json.Unmarshal(decoded, &token) != nil {
			s.refuse(w, r, http.StatusBadRequest, metav1.StatusReasonBadRequest, "invalid continue token")
			return
		}
	}
	objects, after, version := s.page(s.collections[named.path], token.After, limit, matches)
	if token.Version == 0 {
		token.Version = version
	}
	metadata := metav1.ListMeta{ResourceVersion: fmt.Sprint(token.Version)}
	if token.After = after; after != "" {
		encoded, _ := json.Marshal(token)
		metadata.Continue = base64.URLEncoding.EncodeToString(encoded)
	}
	s.note(r, http.StatusOK)
	contentType, encode := jsonType, jsonList
	if wantsProtobuf(r) {
		contentType, encode = protobufType, protobufList
	}
	w.Header().Set("Content-Type", contentType)
	_, _ = w.Write(encode(named.kind, metadata, objects))
}

func jsonList(kind schema.GroupVersionKind, metadata metav1.ListMeta, objects []*object) []byte {
	head, _ := json.Marshal(metadata)
	body := bytes.NewBuffer(make([]byte, 0, len(objects)*6000+1000))
	fmt.Fprintf(body, `{"kind":"%sList","apiVersion":"%s","metadata":%s,"items":[`, kind.Kind, kind.GroupVersion(), head)
	for number, kept := range objects {
		if number > 0 {
			body.WriteByte(',')
		}
		body.Write(kept.json)
	}
	body.WriteString("]}")
	return body.Bytes()
}

// protobufList is the encoding of every list: field 1 is the metadata, field 2 is repeated for the items.
func protobufList(kind schema.GroupVersionKind, metadata metav1.ListMeta, objects []*object) []byte {
	head, _ := metadata.Marshal()
	body := field(make([]byte, 0, len(objects)*4000+1000), 1, head)
	for _, kept := range objects {
		body = field(body, 2, kept.proto)
	}
	kind.Kind += "List"
	return enveloped(kind, body)
}

// field appends a length-delimited field of protobuf.
func field(to []byte, number byte, content []byte) []byte {
	to = append(to, number<<3|2)
	to = binary.AppendUvarint(to, uint64(len(content)))
	return append(to, content...)
}

// watch streams the events after a resourceVersion until the client or the time-out ends it.
func (s *server) watch(w http.ResponseWriter, r *http.Request, named target) {
	query := r.URL.Query()
	if query.Get("sendInitialEvents") == "true" {
		s.refuse(w, r, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents is not supported by the stand-in")
		return
	}
	cursor, err := strconv.ParseUint(query.Get("resourceVersion"), 10, 64)
	if err != nil {
		s.refuse(w, r, http.StatusBadRequest, metav1.StatusReasonBadRequest, "expected a resourceVersion")
		return
	}
	frame, contentType := jsonFrame, jsonType
	if wantsProtobuf(r) {
		frame, contentType = protobufFrame, protobufType+";stream=watch"
	}
	kept := s.collections[named.path]
	events, changed, err := s.since(kept, cursor)
	if err != nil {
		s.refuse(w, r, http.StatusGone, metav1.StatusReasonExpired, err.Error())
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(http.StatusOK)
	seconds := asNumber(query.Get("timeoutSeconds"))
	if seconds == 0 {
		seconds = 600
	}
	end := time.After(time.Duration(seconds) * time.Second)
	bookmarks := time.NewTicker(bookmarkInterval)
	defer bookmarks.Stop()
	for {
		for _, happened := range events {
			if _, err := w.Write(frame(named.kind, happened)); err != nil {
				return
			}
			cursor = happened.object.version
		}
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-bookmarks.C:
			if _, err := w.Write(frame(named.kind, bookmark(named.kind, cursor))); err != nil {
				return
			}
		case <-end:
			_, _ = w.Write(frame(named.kind, bookmark(named.kind, cursor)))
			return
		case <-r.Context().Done():
			return
		}
		if events, changed, err = s.since(kept, cursor); err != nil {
			return
		}
	}
}

func jsonFrame(_ schema.GroupVersionKind, happened event) []byte {
	frame := make([]byte, 0, len(happened.object.json)+50)
	frame = append(append(frame, `{"type":"`+happened.verb+`","object":`...), happened.object.json...)
	return append(frame, "}\n"...)
}

// protobufFrame returns a WatchEvent with a length prefix.
func protobufFrame(kind schema.GroupVersionKind, happened event) []byte {
	wrapped := enveloped(kind, happened.object.proto)
	body := field(nil, 1, []byte(happened.verb))
	body = field(body, 2, field(nil, 1, wrapped))
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// bookmark is an event without a change: all events up to this resourceVersion were sent.
func bookmark(kind schema.GroupVersionKind, version uint64) event {
	typed, err := decode(kind, []byte("{}"))
	if err != nil {
		panic(err) // every kind has an empty object
	}
	empty, err := encode(kind, typed, version)
	if err != nil {
		panic(err)
	}
	return event{"BOOKMARK", empty}
}
