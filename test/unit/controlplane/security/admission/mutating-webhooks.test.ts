/**
 * Tests the order of mutating webhooks: which ones see earlier changes, which ones are reinvoked, and the audit annotations.
 */
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, beforeEach, test } from 'node:test';
import { mutatingWebhookConfigurations, namespaces } from '../../../../../api/client/resources.ts';
import type { GroupVersionKind, KubeObject } from '../../../../../api/meta/object.ts';
import { fixedListers } from '../../../../fakes/fixed-listers.ts';
import type { WebhookMetrics } from '../../../../../controlplane/security/admission/webhook/dispatcher.ts';
import { mutatingWebhooks } from '../../../../../controlplane/security/admission/webhook/mutating-webhooks.ts';
import { WebhookClient } from '../../../../../controlplane/security/webhooks/webhook-client.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { attributesOf } from './attributes.ts';

type Answer = (object: KubeObject) => object;
const answers = new Map<string, Answer>();
/** The path and version of each call. */
const calls: string[] = [];
const client = new WebhookClient('test');
const server = createServer((message, response) => {
  let text = '';
  message.on('data', (chunk: Buffer) => (text += chunk.toString()));
  message.on('end', () => {
    const review = JSON.parse(text) as {
      apiVersion: string;
      kind: string;
      request: { uid: string; object: KubeObject };
    };
    const name = new URL(message.url ?? '', 'http://webhook').pathname.slice(1);
    calls.push(`${name} ${review.request.object.apiVersion}`);
    const { apiVersion, kind, request } = review;
    const fields = answers.get(name)?.(request.object) ?? {};
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ apiVersion, kind, response: { uid: request.uid, allowed: true, ...fields } }));
  });
});
before(() => new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve)));
beforeEach(() => {
  calls.length = 0;
  answers.clear();
});
after(() => {
  client.close();
  server.closeAllConnections();
  server.close();
});

const patch = (operations: unknown): object => ({
  patchType: 'JSONPatch',
  patch: Buffer.from(JSON.stringify(operations)).toString('base64'),
});
const label =
  (name: string): Answer =>
  () =>
    patch([{ op: 'add', path: `/metadata/labels/${name}`, value: 'x' }]);
const hook = (name: string, more: object = {}): object => ({
  name: `${name}.example.com`,
  clientConfig: { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/${name}` },
  rules: [{ apiGroups: ['g'], apiVersions: ['v1'], operations: ['*'], resources: ['things'] }],
  sideEffects: 'None',
  admissionReviewVersions: ['v1'],
  failurePolicy: 'Fail',
  ...more,
});

interface Outcome {
  readonly labels: Record<string, string>;
  readonly annotations: Record<string, string>;
  readonly detailed: readonly string[];
  readonly conversions: number;
  readonly error: Error | undefined;
  readonly metrics: readonly string[];
}

async function run(hooks: readonly object[], reinvoke?: (object: KubeObject) => void): Promise<Outcome> {
  const annotations: Record<string, string> = {};
  const detailed: string[] = [];
  const metrics: string[] = [];
  let conversions = 0;
  const counted: WebhookMetrics = {
    rejected: ({ name, error_type, rejection_code }) => metrics.push(`${name} ${error_type} ${rejection_code}`),
    observe: ({ name, code, rejected }) => metrics.push(`${name} ${code} ${rejected}`),
    failedOpen: ({ name }) => metrics.push(`${name} open`),
  };
  const plugin = mutatingWebhooks({
    listers: fixedListers([
      { resource: namespaces, object: { metadata: { name: 'n' } } },
      { resource: mutatingWebhookConfigurations, object: { metadata: { name: 'c' }, webhooks: hooks } as KubeObject },
    ]),
    client,
    clock: new FakeClock(),
    random: () => 0,
    metrics: counted,
    conversion: {
      isNamespaced: () => true,
      equivalents: () => [{ group: 'g', version: 'v2', resource: 'things' }],
      kindOf: ({ group, version }): GroupVersionKind => ({ group, version, kind: 'Thing' }),
      convert: (object, { group, version, kind }) => {
        conversions += 1;
        return { ...structuredClone(object), apiVersion: `${group}/${version}`, kind };
      },
    },
    reinvoke: ({ object }) => {
      if (object !== undefined) reinvoke?.(object);
      return Promise.resolve();
    },
  });
  const thing = { apiVersion: 'g/v1', kind: 'Thing', metadata: { name: 't', labels: {} } } as KubeObject;
  const attributes = {
    ...attributesOf(thing),
    object: thing,
    setObject: (object: KubeObject) => void (attributes.object = object),
    annotate(key: string, value: string, level?: 'Request') {
      annotations[key] = value;
      if (level === 'Request') detailed.push(key);
    },
  };
  let error: Error | undefined;
  try {
    await plugin.admit?.(attributes, new AbortController().signal);
  } catch (reason) {
    error = reason as Error;
  }
  return { labels: attributes.object.metadata.labels ?? {}, annotations, detailed, conversions, error, metrics };
}

const MUTATION = 'mutation.webhook.admission.k8s.io';
const summary = (name: string, mutated: boolean): string =>
  JSON.stringify({ configuration: 'c', webhook: `${name}.example.com`, mutated });

test('a webhook sees what those before it changed, and is selected by it', async () => {
  answers.set('a', label('made'));
  const selected = { objectSelector: { matchLabels: { made: 'x' } } };
  const { labels } = await run([hook('early', selected), hook('a'), hook('late', selected)]);
  assert.deepEqual(labels, { made: 'x' });
  assert.deepEqual(calls, ['a g/v1', 'late g/v1']);
});

test('webhooks that want to see later changes are called once more, in the second round too, others are not', async () => {
  answers.set('a', (object) =>
    object.metadata.labels?.['b'] === undefined
      ? {}
      : patch([{ op: 'add', path: '/metadata/labels/a', value: 'saw b' }]),
  );
  answers.set('b', label('b'));
  const again = { reinvocationPolicy: 'IfNeeded' };
  const { labels, annotations } = await run([hook('a', again), hook('idle'), hook('b', again)]);
  // The change of `a` in the second round calls `b` again.
  assert.deepEqual(calls, ['a g/v1', 'idle g/v1', 'b g/v1', 'a g/v1', 'b g/v1']);
  assert.deepEqual(labels, { a: 'saw b', b: 'x' });
  assert.deepEqual(
    Object.entries(annotations).filter(([name]) => name.startsWith(MUTATION)),
    [
      [`${MUTATION}/round_0_index_0`, summary('a', false)],
      [`${MUTATION}/round_0_index_1`, summary('idle', false)],
      [`${MUTATION}/round_0_index_2`, summary('b', true)],
      [`${MUTATION}/round_1_index_0`, summary('a', true)],
      [`${MUTATION}/round_1_index_2`, summary('b', false)],
    ],
  );
});

test('a change by built-in plugins calls all webhooks again that were called and want that', async () => {
  answers.set('b', label('b'));
  const again = { reinvocationPolicy: 'IfNeeded' };
  const never = { objectSelector: { matchLabels: { never: 'x' } } };
  const hooks = [hook('a', again), hook('b', again), hook('c', { ...again, ...never })];
  const { labels } = await run(
    hooks,
    (object) => (object.metadata.labels = { ...object.metadata.labels, built: 'in', never: 'x' }),
  );
  // A webhook that did not match in the first round is not called in the second round.
  assert.deepEqual(calls, ['a g/v1', 'b g/v1', 'a g/v1', 'b g/v1']);
  assert.deepEqual(labels, { b: 'x', built: 'in', never: 'x' });
});

test('the patch is noted with its place among all that are configured, where bodies are', async () => {
  answers.set('b', label('b'));
  const { annotations, detailed } = await run([
    hook('other', { objectSelector: { matchLabels: { no: 'x' } } }),
    hook('b'),
  ]);
  const place = 'patch.webhook.admission.k8s.io/round_0_index_1';
  assert.deepEqual(detailed, [place]);
  assert.deepEqual(JSON.parse(annotations[place] ?? ''), {
    configuration: 'c',
    webhook: 'b.example.com',
    patch: [{ op: 'add', path: '/metadata/labels/b', value: 'x' }],
    patchType: 'JSONPatch',
  });
});

test('webhooks for one version share a conversion until the object changes', async () => {
  const other = { rules: [{ apiGroups: ['g'], apiVersions: ['v2'], operations: ['*'], resources: ['things'] }] };
  const idle = await run([hook('a', other), hook('b', other), hook('c', other)]);
  assert.deepEqual(calls, ['a g/v2', 'b g/v2', 'c g/v2']);
  assert.equal(idle.conversions, 1);
  calls.length = 0;
  answers.set('a', label('a'));
  const changed = await run([hook('a', other), hook('b', other), hook('c', other)]);
  assert.deepEqual(changed.labels, { a: 'x' });
  // One conversion to the other version, one back with the change, and one for the other two webhooks.
  assert.equal(changed.conversions, 3);
});

test('each outcome is counted with its code', async () => {
  answers.set('no', () => ({ allowed: false, status: { code: 418, message: 'a teapot' } }));
  const denied = await run([hook('no')]);
  assert.match(denied.error?.message ?? '', /denied the request: a teapot/);
  assert.deepEqual(denied.metrics, ['no.example.com no_error 418', 'no.example.com 418 true']);
  answers.set('broken', () => patch([{ op: 'remove', path: '/none' }]));
  const broken = await run([hook('broken')]);
  assert.deepEqual(broken.metrics, ['broken.example.com apiserver_internal_error 0', 'broken.example.com 0 true']);
  const gone = { clientConfig: { url: 'http://127.0.0.1:9/x' } };
  const failed = await run([hook('gone', gone)]);
  assert.deepEqual(failed.metrics, ['gone.example.com calling_webhook_error 503', 'gone.example.com 503 true']);
  const open = await run([hook('gone', { ...gone, failurePolicy: 'Ignore' })]);
  assert.deepEqual(open.metrics, ['gone.example.com 503 false', 'gone.example.com open']);
  assert.equal(open.annotations['failed-open.mutation.webhook.admission.k8s.io/round_0_index_0'], 'gone.example.com');
});
