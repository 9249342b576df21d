/** Tests the texts of the health paths. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { silentLogger } from '../../../../api/component/logger.ts';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { StartHooks } from '../../../../controlplane/start/start-hooks.ts';
import { installHealth } from '../../../../controlplane/server/health.ts';
import { PathHandlers } from '../../../../controlplane/server/path-handlers.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { FakeCatalog } from '../../../fakes/fake-catalog.ts';
import { startFakeServer } from '../../../fakes/fake-server.ts';

test('checks say ok, or which of them failed', async () => {
  const paths = new PathHandlers();
  let isReady = false;
  const readiness = {
    name: 'informer-sync',
    check: () => {
      if (!isReady) throw new Error('not yet');
    },
  };
  const storage = { name: 'storage', check: () => undefined };
  installHealth(paths, {
    logger: silentLogger,
    clock: systemClock,
    live: [storage],
    ready: [storage, readiness],
  });
  const fake = await startFakeServer(new FakeCatalog([]), { paths });
  const text = async (path: string): Promise<string> => {
    const answer = await fake.request('GET', path);
    return `${answer.status} ${answer.text}`;
  };
  try {
    assert.equal(await text('/livez'), '200 ok');
    assert.equal(await text('/livez?verbose'), '200 [+]ping ok\n[+]storage ok\nlivez check passed\n');
    assert.equal(
      await text('/readyz'),
      '500 [+]ping ok\n[+]storage ok\n[-]informer-sync failed: reason withheld\nreadyz check failed\n',
    );
    assert.equal(await text('/readyz/informer-sync'), '500 internal server error: not yet\n');
    assert.equal(await text('/readyz?exclude=informer-sync'), '200 ok');
    isReady = true;
    assert.equal(await text('/readyz'), '200 ok');
    assert.match(
      await text('/livez?verbose&exclude=x'),
      /warn: some health checks cannot be excluded: no matches for "x"\n/,
    );
    for (const method of ['HEAD', 'OPTIONS', 'PUT'])
      assert.equal((await fake.request(method, '/readyz')).status, 200, method);
  } finally {
    await fake.close();
  }
});

test('/metrics/slis shows the results of the checks for each path, until DELETE', async () => {
  const paths = new PathHandlers();
  const broken = {
    name: 'broken',
    check: () => {
      throw new Error('no');
    },
  };
  installHealth(paths, { logger: silentLogger, clock: systemClock, live: [], ready: [broken] });
  const fake = await startFakeServer(new FakeCatalog([]), { paths });
  try {
    for (const path of ['/livez', '/livez', '/readyz']) await fake.request('GET', path);
    const { status, text } = await fake.request('GET', '/metrics/slis');
    assert.equal(status, 200);
    assert.match(text, /^kubernetes_healthcheck\{name="ping",type="livez"\} 1$/m);
    assert.match(text, /^kubernetes_healthcheck\{name="broken",type="readyz"\} 0$/m);
    assert.match(text, /^kubernetes_healthchecks_total\{name="ping",status="success",type="livez"\} 2$/m);
    assert.match(text, /^kubernetes_healthchecks_total\{name="broken",status="error",type="readyz"\} 1$/m);
    assert.equal((await fake.request('DELETE', '/metrics/slis')).text, 'metrics reset\n');
    assert.equal((await fake.request('GET', '/metrics/slis')).text, '');
  } finally {
    await fake.close();
  }
});

test('a step of the start fails its checks until it is through', async () => {
  const hooks = new StartHooks();
  const failing = (): string[] =>
    hooks.checks.flatMap(({ name, check }) => {
      try {
        void check();
        return [];
      } catch (error) {
        assert.match(String(error), /not finished/);
        return [name];
      }
    });
  assert.equal(failing().length, hooks.checks.length);
  assert.equal(new Set(failing()).size, hooks.checks.length);
  hooks.done('bootstrap');
  assert.ok(!failing().includes('poststarthook/rbac/bootstrap-roles'));
  assert.ok(failing().includes('poststarthook/bootstrap-controller'));
  for (const step of ['admission', 'definitions', 'aggregation', 'loops'] as const) hooks.done(step);
  assert.deepEqual(failing(), []);
});

test('the steps of the start have the names that tests of Kubernetes require', () => {
  const names = new StartHooks().checks.map(({ name }) => name);
  const required = [
    ...['start-apiserver-admission-initializer', 'generic-apiserver-start-informers', 'start-apiextensions-informers'],
    ...['start-apiextensions-controllers', 'crd-informer-synced', 'bootstrap-controller', 'storage-readiness'],
    ...['start-system-namespaces-controller', 'start-service-ip-repair-controllers', 'start-kube-aggregator-informers'],
    ...['scheduling/bootstrap-system-priority-classes', 'start-cluster-authentication-info-controller'],
    ...['apiservice-registration-controller', 'apiservice-status-local-available-controller'],
    ...['apiservice-status-remote-available-controller', 'kube-apiserver-autoregistration'],
    ...['apiservice-openapi-controller'],
  ].map((name) => `poststarthook/${name}`);
  assert.deepEqual(
    [...required, 'autoregister-completion'].filter((name) => !names.includes(name)),
    [],
  );
});

test('failed checks cause few lines of the log, however often clients without credentials request them', async () => {
  const lines: object[] = [];
  const logger = { ...silentLogger, warn: (fields: object) => void lines.push(fields) };
  const broken = {
    name: 'broken',
    check: () => {
      throw new Error('no');
    },
  };
  const paths = new PathHandlers();
  installHealth(paths, { logger, clock: new FakeClock(), live: [], ready: [broken] });
  const fake = await startFakeServer(new FakeCatalog([]), { paths });
  try {
    for (let at = 0; at < 100; at += 1) assert.equal((await fake.request('GET', '/readyz')).status, 500);
    assert.equal(lines.length, 10);
  } finally {
    await fake.close();
  }
});
