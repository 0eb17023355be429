package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// address is the listener of the stand-in, with TLS, and with HTTP/2 for clients that support it.
type address struct {
	url         string
	certificate []byte // PEM
	config      *tls.Config
}

// listen opens a free port of 127.0.0.1 and creates a certificate for it.
func listen() (address, net.Listener, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return address{}, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:        true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return address{}, nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return address{}, nil, err
	}
	return address{
		url:         "https://" + listener.Addr().String(),
		certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}),
		config:      &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{raw}, PrivateKey: key}}},
	}, listener, nil
}

func (a address) kubeconfig() []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: standin
contexts: [{name: standin, context: {cluster: standin, user: standin}}]
clusters: [{name: standin, cluster: {server: "%s", certificate-authority-data: "%s"}}]
users: [{name: standin, user: {token: any}}]
`, a.url, base64.StdEncoding.EncodeToString(a.certificate))
}
