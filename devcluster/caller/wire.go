package main

import (
	_ "embed"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	// imported by calls.proto
	_ "google.golang.org/protobuf/types/known/anypb"
	_ "google.golang.org/protobuf/types/known/durationpb"
	_ "google.golang.org/protobuf/types/known/timestamppb"
)

//go:embed calls.binpb
var compiled []byte

var declared = func() protoreflect.MessageDescriptors {
	var files descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(compiled, &files); err != nil {
		panic(err)
	}
	file, err := protodesc.NewFile(files.File[0], protoregistry.GlobalFiles)
	if err != nil {
		panic(err)
	}
	return file.Messages()
}()

// fields are the fields of a message by name: texts, numbers, bytes, and nested fields and lists. Bytes for a field that
// is a message are the encoded message.
type fields map[string]any

// message creates the message with this name.
func message(name string, of fields) *dynamicpb.Message {
	made := dynamicpb.NewMessage(declared.ByName(protoreflect.Name(name)))
	fill(made, of)
	return made
}

func fill(target protoreflect.Message, of fields) {
	for name, value := range of {
		field := target.Descriptor().Fields().ByName(protoreflect.Name(name))
		if field == nil {
			panic(fmt.Sprintf("%s has no %s", target.Descriptor().Name(), name))
		}
		set(target, field, value)
	}
}

func set(target protoreflect.Message, field protoreflect.FieldDescriptor, value any) {
	switch value := value.(type) {
	case fields:
		fill(target.Mutable(field).Message(), value)
	case []fields:
		list := target.Mutable(field).List()
		for _, part := range value {
			fill(list.AppendMutable().Message(), part)
		}
	case map[string]string:
		entries := target.Mutable(field).Map()
		for key, text := range value {
			entries.Set(protoreflect.ValueOfString(key).MapKey(), protoreflect.ValueOfString(text))
		}
	case []byte:
		if field.Kind() == protoreflect.MessageKind {
			target.Mutable(field).Message().SetUnknown(value)
			return
		}
		target.Set(field, protoreflect.ValueOfBytes(value))
	default:
		target.Set(field, protoreflect.ValueOf(value))
	}
}

// get returns the nested field with these names, or the zero value if it is not set.
func get(from protoreflect.Message, names ...string) protoreflect.Value {
	for _, name := range names[:len(names)-1] {
		from = from.Get(from.Descriptor().Fields().ByName(protoreflect.Name(name))).Message()
	}
	return from.Get(from.Descriptor().Fields().ByName(protoreflect.Name(names[len(names)-1])))
}

func has(from protoreflect.Message, name string) bool {
	return from.Has(from.Descriptor().Fields().ByName(protoreflect.Name(name)))
}
