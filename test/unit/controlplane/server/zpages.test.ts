/** Tests `/statusz` and `/flagz` of the API server. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { parseFlags } from '../../../../api/component/flags.ts';
import { controlPlaneFlags } from '../../../../controlplane/options/controlplane-options.ts';
import { flagz } from '../../../../controlplane/options/flagz.ts';
import { PathHandlers } from '../../../../controlplane/server/path-handlers.ts';
import { installZpages } from '../../../../controlplane/server/zpages.ts';
import { FakeCatalog } from '../../../fakes/fake-catalog.ts';
import { startFakeServer } from '../../../fakes/fake-server.ts';

describe('/statusz and /flagz of the API server', () => {
  let fake: Awaited<ReturnType<typeof startFakeServer>>;
  const nowMs = Date.UTC(2026, 0, 2, 3, 4, 5);
  const { values } = parseFlags(controlPlaneFlags, ['--etcd-servers=http://root:secret@127.0.0.1:2379', '--v=3']);
  before(async () => {
    const paths = new PathHandlers();
    for (const path of ['/', '/index.html', '/apis', '/healthz', '/healthz/ping', '/openapi/v2', '/version'])
      paths.exact(path, () => undefined);
    installZpages(paths, {
      statusz: () => ({ startedAtMs: nowMs - 3_725_000, nowMs, version: '1.36.2' }),
      flagz: () => flagz(values),
    });
    fake = await startFakeServer(new FakeCatalog([]), { paths });
  });
  after(() => fake.close());

  const as = (kind: string, version = 'v1beta1'): Record<string, string> => ({
    accept: `application/json;g=config.k8s.io;v=${version};as=${kind}`,
  });

  it('show the release and the paths for debugging as text', async () => {
    const { status, text } = await fake.request('GET', '/statusz', { accept: 'text/plain' });
    assert.equal(status, 200);
    assert.match(
      text,
      /^\napiserver statusz\nWarning: .*\n\nStarted: Fri Jan {2}2 02:02:00 UTC 2026\nUp: 1 hr 02 min 05/,
    );
    assert.match(text, /\nPaths: \/flagz \/healthz \/statusz \/version\n$/);
  });

  it('are objects of config.k8s.io if the Accept header requests their kind', async () => {
    const { headers, text } = await fake.request('GET', '/statusz', as('Statusz'));
    assert.equal(headers['content-type'], as('Statusz')['accept']);
    assert.equal(headers['warning'], undefined);
    assert.deepEqual(Object.keys(JSON.parse(text) as object).slice(0, 3), ['kind', 'apiVersion', 'metadata']);
    const old = await fake.request('GET', '/statusz', as('Statusz', 'v1alpha1'));
    assert.match(String(old.headers['warning']), /^299 - "This version of the statusz endpoint is deprecated/);
  });

  it('refuse other Accept headers', async () => {
    for (const accept of ['application/json', 'application/cbor', as('Statusz')['accept'] ?? ''])
      assert.equal((await fake.request('GET', '/flagz', { accept })).status, 406, accept);
  });

  it('send the refusal in YAML to clients that accept YAML, and indented to clients that accept neither', async () => {
    const body = async (accept: string, path = '/flagz'): Promise<string> =>
      (await fake.request('GET', path, { accept })).text;
    assert.match(await body('application/yaml'), /^apiVersion: v1\ncode: 406\n/);
    assert.match(await body('application/json'), /^\{"kind":"Status".*\}\n$/);
    assert.match(await body('application/cbor'), /^\{\n {2}"kind": "Status"/);
    assert.match(await body(`${as('Flagz')['accept']};stream=watch`), /"NotAcceptable"/);
    assert.match(await body(as('Flagz')['accept'] ?? '', '/flagz?pretty=1'), /^\{\n {2}"kind": "Flagz"[^]*\n\}$/);
  });

  it('show flags with their values, but no credentials of addresses', async () => {
    const { text } = await fake.request('GET', '/flagz', as('Flagz'));
    const { flags } = JSON.parse(text) as { readonly flags: Readonly<Record<string, string>> };
    assert.equal(flags['v'], '3');
    assert.equal(flags['request-timeout'], '1m0s');
    assert.equal(flags['etcd-servers'], 'CLASSIFIED');
  });
});
