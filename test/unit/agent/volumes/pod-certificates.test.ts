import assert from 'node:assert/strict';
import { createPrivateKey } from 'node:crypto';
import { describe, it } from 'node:test';
import type { Pod, Volume } from '../../../../agent/base/model/pod.ts';
import { volumePayload, type PayloadSources } from '../../../../agent/volumes/payload.ts';
import { PodCertificates, type PodCertificateSource } from '../../../../agent/volumes/pod-certificates.ts';
import { formatTime } from '../../../../api/machinery/clock.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { newNotFound } from '../../../../api/meta/status-error.ts';
import { parseCsrDer } from '../../../../api/pki/certificate-request.ts';
import { FakeClient } from '../../../fakes/fake-client.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { until } from '../../../until.ts';

const HOUR_MS = 3_600_000;
const CHAIN = '-----BEGIN CERTIFICATE-----\nAAEC\n-----END CERTIFICATE-----\n';
const pod: Pod = {
  metadata: { name: 'p', namespace: 'ns', uid: 'u' },
  spec: { serviceAccountName: 'robot', containers: [{ name: 'c', securityContext: { runAsUser: 7 } }] },
};
const source: PodCertificateSource = {
  signerName: 'example.com/signer',
  keyType: 'ED25519',
  credentialBundlePath: 'bundle.pem',
  userAnnotations: { 'example.com/a': 'b' },
};

/** Returns a signer that responds with the result of `answer`. Requests are numbered from 1. */
function setUp(answer: (request: number) => object | undefined) {
  const clock = new FakeClock();
  const client = new FakeClient(clock);
  const requests: KubeObject[] = [];
  const events: string[] = [];
  const state = { isGone: false };
  client.intercept((call) => {
    if (call.resource.resource === 'serviceaccounts') return { metadata: { name: 'robot', uid: 'sa-uid' } };
    if (call.verb === 'create' && call.object !== undefined) {
      requests.push(call.object);
      return { ...call.object, metadata: { ...call.object.metadata, name: `req-${requests.length}` } };
    }
    if (state.isGone) throw newNotFound({ group: 'certificates.k8s.io', resource: 'podcertificaterequests' }, 'req');
    return { metadata: {}, status: answer(requests.length) } as KubeObject;
  });
  const certificates = new PodCertificates({
    client,
    clock,
    events: { event: (_pod, _type, reason, message) => void events.push(`${reason} ${message}`) },
    node: () => ({ name: 'n', uid: 'node-uid' }),
    random: () => 0,
  });
  const issued = (hours: number): object => ({
    conditions: [{ type: 'Issued', status: 'True' }],
    certificateChain: `rubbish\n${CHAIN}`,
    beginRefreshAt: formatTime(clock.now() + hours * HOUR_MS),
    notAfter: formatTime(clock.now() + 2 * hours * HOUR_MS),
  });
  const bundleOf = (of = source): ReturnType<PodCertificates['bundle']> => certificates.bundle(pod, 'v', 0, of);
  /** Polls a pending request until the time limit. */
  const waitForBundle = async (): Promise<unknown> => {
    let ended = false;
    const waiting = bundleOf()
      .catch((error: Error) => error.message)
      .finally(() => (ended = true));
    await until('the end of the request', async () => {
      await clock.advance(1000);
      return ended;
    });
    return waiting;
  };
  return { clock, requests, events, state, certificates, issued, bundleOf, waitForBundle };
}

describe('certificates of pods', () => {
  it('are requested once, with a proof of possession of the key', async () => {
    const { requests, bundleOf, issued } = setUp(() => issued(1));
    const bundle = await bundleOf();
    assert.equal(bundle.chain, CHAIN);
    assert.equal(createPrivateKey(bundle.key).asymmetricKeyType, 'ed25519');
    const [request] = requests;
    const { stubPKCS10Request, ...spec } = (request?.['spec'] ?? {}) as Record<string, unknown>;
    assert.deepEqual(spec, {
      signerName: 'example.com/signer',
      podName: 'p',
      podUID: 'u',
      serviceAccountName: 'robot',
      serviceAccountUID: 'sa-uid',
      nodeName: 'n',
      nodeUID: 'node-uid',
      maxExpirationSeconds: 86_400,
      unverifiedUserAnnotations: { 'example.com/a': 'b' },
    });
    const csr = parseCsrDer(Buffer.from(String(stubPKCS10Request), 'base64'));
    assert.equal(csr.signatureValid, true);
    assert.deepEqual(await bundleOf(), bundle);
    assert.equal(requests.length, 1);
  });
  for (const [keyType, type, size] of [
    ['ECDSAP256', 'ec', 'prime256v1'],
    ['ECDSAP384', 'ec', 'secp384r1'],
    ['ECDSAP521', 'ec', 'secp521r1'],
    ['RSA3072', 'rsa', 3072],
  ] as const) {
    it(`have a key of type ${keyType}`, async () => {
      const { bundleOf, issued } = setUp(() => issued(1));
      const key = createPrivateKey((await bundleOf({ ...source, keyType })).key);
      const { namedCurve, modulusLength } = key.asymmetricKeyDetails ?? {};
      assert.deepEqual([key.asymmetricKeyType, namedCurve ?? modulusLength], [type, size]);
    });
  }
  it("are renewed at the signer's refresh time, and used until then", async () => {
    let answers = true;
    const { clock, requests, events, bundleOf, issued } = setUp(() => (answers ? issued(1) : {}));
    const first = await bundleOf();
    await clock.advance(HOUR_MS + 1);
    answers = false;
    assert.deepEqual(await bundleOf(), first);
    assert.deepEqual(await bundleOf(), first);
    assert.equal(requests.length, 2);
    await clock.advance(HOUR_MS);
    assert.deepEqual(await bundleOf(), first);
    assert.deepEqual(events, [
      'CertificateOverdueForRefresh PodCertificate refresh overdue',
      'CertificateExpired PodCertificate expired',
    ]);
    answers = true;
    assert.notEqual((await bundleOf()).key, first.key);
    assert.equal(requests.length, 2);
  });
  it('are awaited until the signer responds, and requested again when the request is deleted', async () => {
    let answers = false;
    const { requests, state, waitForBundle, bundleOf, issued } = setUp(() => (answers ? issued(1) : {}));
    assert.equal(await waitForBundle(), 'credential bundle is not issued yet');
    state.isGone = true;
    await assert.rejects(bundleOf());
    state.isGone = false;
    answers = true;
    assert.equal((await bundleOf()).chain, CHAIN);
    assert.equal(requests.length, 2);
  });
  for (const [type, rejection, event] of [
    [
      'Denied',
      'PodCertificateRequest was permanently denied: reason="No" message="not you"',
      'Denied PodCertificateRequest ns/req-1 was denied, reason="No", message="not you"',
    ],
    [
      'Failed',
      'PodCertificateRequest was permanently failed: reason="No" message="not you"',
      'Failed PodCertificateRequest ns/req-1 failed, reason="No", message="not you"',
    ],
  ] as const) {
    it(`are not requested again once ${type}`, async () => {
      const { requests, events, bundleOf } = setUp(() => ({
        conditions: [{ type, reason: 'No', message: 'not you' }],
      }));
      await assert.rejects(bundleOf(), { message: rejection });
      await assert.rejects(bundleOf(), { message: rejection });
      assert.equal(requests.length, 1);
      assert.deepEqual(events, [event]);
    });
  }
  it("are in the volume's files, readable by the pod's user only", async () => {
    const { certificates, issued } = setUp(() => issued(1));
    const volume = {
      name: 'v',
      projected: { sources: [{ podCertificate: { ...source, keyPath: 'key', certificateChainPath: 'chain' } }] },
    } as Volume;
    const files = await volumePayload(pod, volume, {
      podCertificate: (of, name, index, wanted) => certificates.bundle(of, name, index, wanted),
    } as PayloadSources);
    const text = (path: string): string => files?.get(path)?.content.toString() ?? '';
    assert.equal(text('bundle.pem'), text('key') + text('chain'));
    assert.equal(text('chain'), CHAIN);
    assert.deepEqual([files?.get('key')?.mode, files?.get('key')?.uid], [0o600, 7]);
  });
});
