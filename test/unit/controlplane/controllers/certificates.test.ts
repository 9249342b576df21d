import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { createCsr } from '../../../../api/pki/certificate-request.ts';
import { generateKey } from '../../../../api/pki/signing.ts';
import { formatTime } from '../../../../api/machinery/clock.ts';
import type { CertificateSigningRequest } from '../../../../api/kinds/kinds.ts';
import { certificateSigningRequests } from '../../../../api/client/resources.ts';
import { runCertificateApprover } from '../../../../controlplane/controllers/certificates/certificate-approver.ts';
import { runCertificateCleaner } from '../../../../controlplane/controllers/certificates/certificate-cleaner.ts';
import { removalTime } from '../../../../controlplane/controllers/certificates/certificate-requests.ts';
import {
  certificateSigner,
  SigningRefused,
} from '../../../../controlplane/controllers/certificates/certificate-signer.ts';
import { controllerTest, type ControllerTest } from '../../../fakes/fake-controllers.ts';

const SIGNER = 'kubernetes.io/kube-apiserver-client-kubelet';
const HOUR = 3600_000;
type Conditions = NonNullable<NonNullable<CertificateSigningRequest['status']>['conditions']>;

let encoded = '';
before(async () => {
  const subject = { commonName: 'system:node:a', organizations: ['system:nodes'] };
  encoded = Buffer.from(createCsr({ subject }, await generateKey('ecdsa'))).toString('base64');
});

const request = (
  username = 'system:bootstrap:abc',
  conditions: Conditions = [],
  usages = ['client auth', 'digital signature'],
): CertificateSigningRequest => ({
  metadata: { name: 'r' },
  spec: { signerName: SIGNER, username, usages, request: encoded },
  status: { conditions },
});
const approved = (atMs = 0): Conditions => [{ type: 'Approved', status: 'True', lastUpdateTime: formatTime(atMs) }];

/** Lets access reviews allow only these subresources. */
function allowing(t: ControllerTest, ...allowed: string[]): void {
  t.client.intercept(({ verb, resource, object }) => {
    if (verb !== 'create' || resource.resource !== 'subjectaccessreviews' || object === undefined) return undefined;
    const { spec } = object as unknown as { spec: { resourceAttributes: { subresource: string } } };
    return { ...object, status: { allowed: allowed.includes(spec.resourceAttributes.subresource) } };
  });
}

const stored = (t: ControllerTest) => t.client.peek(certificateSigningRequests, '', 'r')?.status;

async function approve(one: CertificateSigningRequest, ...allowed: string[]): Promise<string[]> {
  const t = controllerTest({ objects: [[certificateSigningRequests, one]] });
  allowing(t, ...allowed);
  // The fake writes only `status` through a subresource of that name.
  t.client.intercept(({ verb, subresource, object }) => {
    if (verb !== 'update' || subresource !== 'approval' || object === undefined) return undefined;
    return t.client.seed(certificateSigningRequests, object);
  });
  await t.start(runCertificateApprover);
  await t.advance(1000);
  await t.stop();
  return (stored(t)?.conditions ?? []).map(({ type, message }) => `${type}: ${message}`);
}

describe('requests of nodes', () => {
  test('are approved for a joining node that may ask', async () =>
    assert.deepEqual(await approve(request(), 'nodeclient'), [
      'Approved: Auto approving kubelet client certificate after SubjectAccessReview.',
    ]));
  test('are approved for the node itself', async () =>
    assert.deepEqual(await approve(request('system:node:a'), 'selfnodeclient'), [
      'Approved: Auto approving self kubelet client certificate after SubjectAccessReview.',
    ]));
  test('stay pending if the user has no permission', async () => assert.deepEqual(await approve(request()), []));
  test('for another node than the asking one are no renewals', async () =>
    assert.deepEqual(await approve(request('system:node:b'), 'selfnodeclient'), []));
  test('that ask for more than a client certificate wait', async () =>
    assert.deepEqual(await approve(request(undefined, [], ['client auth', 'server auth']), 'nodeclient'), []));
});

describe('approved requests', () => {
  const signing = async (one: CertificateSigningRequest, sign: () => string) => {
    const t = controllerTest({ objects: [[certificateSigningRequests, one]] });
    await t.start(certificateSigner({ signerNames: [SIGNER], sign }));
    await t.advance(1000);
    await t.stop();
    return stored(t);
  };
  test('are signed', async () => {
    const status = await signing(request(undefined, approved()), () => 'PEM');
    assert.equal(Buffer.from(status?.certificate ?? '', 'base64').toString(), 'PEM');
  });
  test('that break the rules of the signer fail for good', async () => {
    const status = await signing(request(undefined, approved()), () => {
      throw new SigningRefused('wrong usages');
    });
    const failed = status?.conditions?.find(({ type }) => type === 'Failed');
    assert.deepEqual([failed?.reason, failed?.message], ['SignerValidationFailure', 'wrong usages']);
  });
  test('are the only ones that are signed', async () =>
    assert.equal((await signing(request(), () => 'PEM'))?.certificate, undefined));
  test('that were denied too are not', async () => {
    const both: Conditions = [...approved(), { type: 'Denied', status: 'True' }];
    assert.equal((await signing(request(undefined, both), () => 'PEM'))?.certificate, undefined);
  });
});

describe('requests that are done with', () => {
  const created = Date.UTC(2026, 0, 1);
  const at = (conditions: Conditions): CertificateSigningRequest => ({
    ...request(undefined, conditions),
    metadata: { name: 'r', creationTimestamp: formatTime(created) },
  });
  test('go an hour after the decision', () => {
    assert.equal(removalTime(at(approved(created + 5 * HOUR)), undefined), created + 6 * HOUR);
  });
  test('are deleted after a day if they are pending', () =>
    assert.equal(removalTime(at([]), undefined), created + 24 * HOUR));
  test('stay for an hour, whatever their conditions are', () =>
    assert.equal(removalTime(at(approved(0)), undefined), created + HOUR));
  test('are removed by their own timer', async () => {
    const t = controllerTest();
    t.client.seed(certificateSigningRequests, request(undefined, approved(t.clock.now())));
    await t.start(runCertificateCleaner);
    await t.advance(HOUR - 60_000);
    assert.ok(stored(t));
    await t.advance(120_000);
    assert.equal(stored(t), undefined);
    await t.stop();
  });
});
