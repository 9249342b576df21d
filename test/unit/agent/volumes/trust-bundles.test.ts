import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { trustBundleCertificates, type TrustBundleSource } from '../../../../agent/volumes/trust-bundles.ts';
import type { Resource } from '../../../../api/client/client.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { FakeClient } from '../../../fakes/fake-client.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

const resource: Resource = {
  group: 'certificates.k8s.io',
  version: 'v1beta1',
  resource: 'clustertrustbundles',
  kind: 'ClusterTrustBundle',
  namespaced: false,
};
const pem = (content: string): string => `-----BEGIN CERTIFICATE-----\n${content}\n-----END CERTIFICATE-----\n`;
const bundle = (name: string, signerName: string | undefined, tier: string, ...content: string[]): KubeObject =>
  ({
    metadata: { name, labels: { tier } },
    spec: {
      ...(signerName === undefined ? {} : { signerName }),
      trustBundle: `a comment\n${content.map(pem).join('\n')}`,
    },
  }) as unknown as KubeObject;

function read(source: Omit<TrustBundleSource, 'path'>): Promise<string> {
  const client = new FakeClient(new FakeClock());
  client.seed(resource, bundle('plain', undefined, 'x', 'BBB', 'AAA'));
  client.seed(resource, bundle('d:one', 'd.example.com/ca', 'live', 'CCC'));
  client.seed(resource, bundle('d:two', 'd.example.com/ca', 'live', 'CCC', 'DDD'));
  client.seed(resource, bundle('d:old', 'd.example.com/ca', 'old', 'EEE'));
  client.seed(resource, bundle('e:one', 'e.example.com/ca', 'live', 'FFF'));
  return trustBundleCertificates(client, { path: 'ca.pem', ...source });
}

describe('certificates of cluster trust bundles', () => {
  it('are those of a bundle by its name, without the text around them', async () => {
    assert.equal(await read({ name: 'plain' }), pem('AAA') + pem('BBB'));
  });

  it("are those of a signer's bundles that the labels choose, each once", async () => {
    const signerName = 'd.example.com/ca';
    assert.equal(await read({ signerName, labelSelector: { matchLabels: { tier: 'live' } } }), pem('CCC') + pem('DDD'));
    assert.equal(await read({ signerName, labelSelector: {} }), pem('CCC') + pem('DDD') + pem('EEE'));
  });

  it('must be there, unless they are optional', async () => {
    await assert.rejects(read({ name: 'gone' }), { message: 'clustertrustbundle "gone" not found' });
    await assert.rejects(read({ signerName: 'd.example.com/ca' }), /matched zero ClusterTrustBundles/);
    assert.equal(await read({ name: 'gone', optional: true }), '');
  });
});
