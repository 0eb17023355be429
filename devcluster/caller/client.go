package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

const service = "/clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider/"

// call is an entry of the transcript.
type call struct {
	Step  string `json:"step"`
	RPC   string `json:"rpc"`
	About string `json:"about,omitempty"`
	Code  string `json:"code"`
}

type client struct {
	connection *grpc.ClientConn
	timeout    time.Duration
	generation string
	step       string
	calls      []call
}

// connect opens a connection like Cluster Autoscaler: plain text without a certificate, otherwise mutual TLS. The server's
// certificate must be issued by the CA, for the host of the address.
func connect(given settings) (*client, error) {
	timeout, err := time.ParseDuration(given.Timeout)
	if err != nil {
		return nil, fmt.Errorf("grpc_timeout: %w", err)
	}
	secrets := insecure.NewCredentials()
	if given.Cert != "" {
		if secrets, err = mutual(given); err != nil {
			return nil, err
		}
	}
	connection, err := grpc.NewClient("passthrough:///"+given.Address, grpc.WithTransportCredentials(secrets))
	if err != nil {
		return nil, err
	}
	return &client{connection: connection, timeout: timeout, generation: given.Generation}, nil
}

func mutual(given settings) (credentials.TransportCredentials, error) {
	host, _, err := net.SplitHostPort(given.Address)
	if err != nil {
		return nil, err
	}
	own, err := tls.LoadX509KeyPair(given.Cert, given.Key)
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(given.CACert)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return nil, errors.New("cacert: no certificate in it")
	}
	return credentials.NewTLS(&tls.Config{ServerName: host, Certificates: []tls.Certificate{own}, RootCAs: pool}), nil
}

// ask makes a call. For the transcript, about names the object of the call.
func (c *client) ask(rpc, about string, request *dynamicpb.Message, answer string) (protoreflect.Message, error) {
	within, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	got := dynamicpb.NewMessage(declared.ByName(protoreflect.Name(answer)))
	err := c.connection.Invoke(within, service+rpc, request, got)
	c.calls = append(c.calls, call{Step: c.step, RPC: rpc, About: about, Code: status.Code(err).String()})
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", rpc, about, err)
	}
	return got, nil
}

// unimplemented returns whether the provider does not implement the call.
func unimplemented(err error) bool {
	return status.Code(errors.Unwrap(err)) == codes.Unimplemented
}
