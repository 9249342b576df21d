/** Tests which serving certificates of nodes are approved without being named. */
import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import type { CertificateSigningRequest, Endpoints, Node } from '../../../../api/kinds/kinds.ts';
import { createCsr } from '../../../../api/pki/certificate-request.ts';
import type { AlternativeNames } from '../../../../api/pki/names.ts';
import { generateKey, type KeyPair } from '../../../../api/pki/signing.ts';
import { apiServerNames, servingFault } from '../../../../cli/cluster/serving-requests.ts';

const node = (name: string, ...addresses: string[]): Node =>
  ({
    metadata: { name },
    status: { addresses: addresses.map((address) => ({ type: 'InternalIP', address })) },
  }) as Node;
const endpoints = { metadata: {}, subsets: [{ addresses: [{ ip: '10.0.0.1' }] }] } as unknown as Endpoints;
const cluster = {
  // The hostile node has the address of the API server and that of another node in its status, which it writes itself.
  nodes: [
    node('a', '10.0.0.5', '10.0.0.1', '10.0.0.6', '10.96.0.1', 'API.Example.com.', '::ffff:10.0.0.1', '*.b'),
    node('b', '10.0.0.6', 'b.example.com'),
  ],
  apiServer: apiServerNames('https://api.example.com:6443', ['10.96.0.1'], [endpoints]),
};

describe('a serving certificate of a node', () => {
  let keys: KeyPair;
  before(async () => {
    keys = await generateKey('ecdsa');
  });
  const faultOf = (names: AlternativeNames, { cn = 'system:node:a', username = 'system:node:a' } = {}): string => {
    const pem = createCsr({ subject: { commonName: cn, organizations: ['system:nodes'] }, names }, keys);
    const spec = {
      username,
      signerName: 'kubernetes.io/kubelet-serving',
      request: Buffer.from(pem).toString('base64'),
    };
    return servingFault({ metadata: { name: 'r' }, spec } as CertificateSigningRequest, cluster);
  };

  it('with its own name and address is approved', () => assert.equal(faultOf({ dns: ['a'], ip: ['10.0.0.5'] }), ''));

  for (const [what, names, fault] of [
    ['with the name of the service of the API server', { dns: ['kubernetes.default.svc'] }, /names the API server/],
    ['with the name of the URL of the API server', { dns: ['api.example.com'] }, /names the API server/],
    ['with the address of the service of the API server', { ip: ['10.96.0.1'] }, /names the API server/],
    ['with the address of the API server', { ip: ['10.0.0.5', '10.0.0.1'] }, /"10.0.0.1" names the API server/],
    ['with another spelling of the name of the URL', { dns: ['API.Example.com.'] }, /names the API server/],
    ['with another spelling of its address', { ip: ['::ffff:10.0.0.1'] }, /names the API server/],
    ['with a name for many names', { dns: ['*.b'] }, /is no name or address of the node/],
    ['with a loopback address', { ip: ['127.0.0.1'] }, /names the API server/],
    ['with the address of another node', { ip: ['10.0.0.6'] }, /"10.0.0.6" names the node "b"/],
    ['with the name of another node', { dns: ['b.example.com'] }, /names the node "b"/],
    ['with a name of nobody', { dns: ['registry.example.com'] }, /is no name or address of the node/],
  ] as const)
    it(`${what} is not approved`, () => assert.match(faultOf(names), fault));

  it('for another node, by another user or for no node is not approved', () => {
    const names = { dns: ['b'] };
    assert.match(faultOf(names, { cn: 'system:node:b' }), /not for its author/);
    assert.match(faultOf(names, { cn: 'ann', username: 'ann' }), /not for its author/);
    assert.match(faultOf(names, { cn: 'system:node:c', username: 'system:node:c' }), /there is no node "c"/);
  });
});
