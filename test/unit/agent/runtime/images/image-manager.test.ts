import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Container, Pod } from '../../../../../agent/base/model/pod.ts';
import type { ReferencedObjects } from '../../../../../agent/base/model/referenced-objects.ts';
import {
  ImageError,
  ImageManager,
  type ImageManagerOptions,
} from '../../../../../agent/runtime/images/image-manager.ts';
import type { PullCredential } from '../../../../../agent/runtime/images/pull-credentials.ts';
import type { PullVerification } from '../../../../../agent/runtime/images/pull-verification.ts';
import type { ImageInfo, RegistryAuth } from '../../../../../agent/runtime/runtime.ts';
import { pullMetrics } from '../../../../../agent/resources/statistics/pull-metrics.ts';
import { MetricsRegistry } from '../../../../../api/component/metrics.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

const IMAGE = 'reg.example.com/team/app:1';

const podOf = (name: string, secrets: readonly string[] = []): Pod => ({
  metadata: { name, namespace: 'ns', uid: `uid-${name}` },
  spec: { containers: [], imagePullSecrets: secrets.map((secret) => ({ name: secret })) },
});

const secretOf = (auths: object, type: '.dockerconfigjson' | '.dockercfg' = '.dockerconfigjson'): KubeObject => {
  const text = JSON.stringify(type === '.dockerconfigjson' ? { auths } : auths);
  return {
    metadata: { name: 's', namespace: 'ns', uid: 'uid-s' },
    type: `kubernetes.io/${type.slice(1)}`,
    data: { [type]: Buffer.from(text).toString('base64') },
  } as unknown as KubeObject;
};

const login = (username: string): object => ({ auth: Buffer.from(`${username}:p`).toString('base64') });

function setUp(
  changes: Partial<ImageManagerOptions> = {},
  given: { readonly present?: readonly string[]; readonly secrets?: Readonly<Record<string, KubeObject>> } = {},
) {
  const clock = new FakeClock();
  const present = new Set(given.present ?? []);
  const events: string[] = [];
  const pulls: { readonly image: string; readonly auth: RegistryAuth | undefined; end(error?: Error): void }[] = [];
  const requests: string[] = [];
  const info = (id: string): ImageInfo => ({
    id,
    repoTags: [id],
    repoDigests: [],
    sizeBytes: 7,
    user: '',
    pinned: false,
  });
  const manager = new ImageManager({
    runtime: {
      imageStatus: (reference) => Promise.resolve(present.has(reference) ? info(reference) : undefined),
      pullImage: (image, auth, { signal: aborted }) =>
        new Promise((resolve, reject) => {
          aborted.addEventListener('abort', () => reject(new Error('context canceled')), { once: true });
          pulls.push({
            image,
            auth,
            end(error) {
              if (error !== undefined) return reject(error);
              present.add(image);
              resolve(image);
            },
          });
        }),
    },
    clock,
    events: {
      event: (_pod, type, reason, message) => void events.push(`${type} ${reason} ${message}`),
    } as ImageManagerOptions['events'],
    objects: { secret: (_namespace, name) => Promise.resolve(given.secrets?.[name]) } as ReferencedObjects,
    serialPulls: false,
    maxParallelPulls: 0,
    registryQps: 0,
    registryBurst: 0,
    onRequest: ({ pullPolicy, isPresent, isPullRequired }) =>
      void requests.push([pullPolicy, isPresent, isPullRequired].map(String).join(' ')),
    ...changes,
  });
  const signal = new AbortController().signal;
  const ensure = (pod: Pod, image = IMAGE, imagePullPolicy = 'IfNotPresent', until = signal): Promise<ImageInfo> =>
    manager.ensure(pod, { name: 'c', image, imagePullPolicy } as Container, 'regular', until);
  /** Runs everything that needs no time to pass. */
  const settle = (): Promise<void> => clock.advance(0);
  return { clock, events, pulls, requests, manager, ensure, settle };
}

const refused = (reason: string, message: string | RegExp) => (error: unknown) => {
  assert.ok(error instanceof ImageError);
  assert.equal(error.reason, reason);
  if (typeof message === 'string') assert.equal(error.message, message);
  else assert.match(error.message, message);
  return true;
};

describe('the metric of pulls', () => {
  it('has the duration with the time in the queue by the size of the image, of pulls that succeed', async () => {
    const metrics = new MetricsRegistry();
    const { ensure, pulls, settle, clock } = setUp({ serialPulls: true, onPulled: pullMetrics(metrics) });
    const all = Promise.allSettled(['a:1', 'b:1', 'c:1'].map((image) => ensure(podOf('p'), image)));
    await settle();
    for (const error of [undefined, undefined, new Error('no')]) {
      await clock.advance(4_000);
      pulls.at(-1)?.end(error);
      await settle();
    }
    await all;
    const counted = (series: string): string | undefined =>
      new RegExp(`^kubelet_image_pull_duration_seconds_${series} (.*)$`, 'm').exec(metrics.text())?.[1];
    assert.equal(counted('bucket\\{image_size_in_bytes="0-10MB",le="5"\\}'), '1');
    assert.equal(counted('bucket\\{image_size_in_bytes="0-10MB",le="10"\\}'), '2');
    assert.equal(counted('count\\{image_size_in_bytes="0-10MB"\\}'), '2');
  });

  for (const [sizeBytes, label] of [
    [0, 'N/A'],
    [10 * 1024 ** 2, '0-10MB'],
    [10 * 1024 ** 2 + 1, '10MB-100MB'],
    [1024 ** 3, '500MB-1GB'],
    [200 * 1024 ** 3, 'GT100GB'],
  ] as const)
    it(`has the label ${label} for ${sizeBytes} bytes`, () => {
      const metrics = new MetricsRegistry();
      pullMetrics(metrics)(1_000, sizeBytes);
      assert.ok(metrics.text().includes(`kubelet_image_pull_duration_seconds_count{image_size_in_bytes="${label}"} 1`));
    });
});

describe('the pull policy', () => {
  it('IfNotPresent uses an existing image, and pulls a missing one', async () => {
    const { ensure, pulls, events, settle, requests } = setUp({}, { present: ['there:1'] });
    await ensure(podOf('p'), 'there:1');
    assert.deepEqual(events, ['Normal Pulled Container image "there:1" already present on machine']);
    const wanted = ensure(podOf('p'));
    await settle();
    pulls[0]?.end();
    await wanted;
    assert.deepEqual(events.slice(1), [
      `Normal Pulling Pulling image "${IMAGE}"`,
      `Normal Pulled Successfully pulled image "${IMAGE}" in 0s (0s including waiting). Image size: 7 bytes.`,
    ]);
    assert.deepEqual(requests, ['IfNotPresent true false', 'IfNotPresent false true']);
  });

  it('Always pulls an existing image', async () => {
    const { ensure, pulls, settle, requests } = setUp({}, { present: [IMAGE] });
    const wanted = ensure(podOf('p'), IMAGE, 'Always');
    await settle();
    pulls[0]?.end();
    assert.equal((await wanted).id, IMAGE);
    assert.deepEqual(requests, ['Always undefined true']);
  });

  it('Never reports the same for a missing image and for one that the pod may not use', async () => {
    const message = `Container image "${IMAGE}" is not present with pull policy of Never`;
    const missing = setUp();
    await assert.rejects(missing.ensure(podOf('p'), IMAGE, 'Never'), refused('ErrImageNeverPull', message));
    const verification = { mustPull: () => Promise.resolve(true) } as unknown as PullVerification;
    const guarded = setUp({ verification }, { present: [IMAGE] });
    await assert.rejects(guarded.ensure(podOf('p'), IMAGE, 'Never'), refused('ErrImageNeverPull', message));
    assert.deepEqual(guarded.events, [`Warning ErrImageNeverPull ${message}`]);
    assert.deepEqual(guarded.events, missing.events);
  });

  it('of an image that is no name does not matter', async () => {
    const { ensure } = setUp();
    await assert.rejects(
      ensure(podOf('p'), 'No:Name:'),
      refused('InvalidImageName', /couldn't parse image name "No:Name:"/),
    );
  });
});

describe('an image that is there, of which credentials are verified', () => {
  it('is pulled to verify credentials, which are recorded afterwards', async () => {
    const log: string[] = [];
    const verification = {
      mustPull: async (_image: string, _id: string, credentials: () => Promise<readonly PullCredential[]>) => {
        const given = await credentials();
        log.push(`check ${given.map(({ auth }) => auth.username).join()}`);
        return true;
      },
      starts: (image: string) => Promise.resolve(void log.push(`starts ${image}`)),
      pulled: (_image: string, id: string, used: PullCredential) =>
        Promise.resolve(void log.push(`pulled ${id} ${used.source?.name}`)),
      failed: () => Promise.resolve(void log.push('failed')),
    } as unknown as PullVerification;
    const { ensure, pulls, settle } = setUp(
      { verification },
      { present: [IMAGE], secrets: { a: secretOf({ 'reg.example.com': login('ann') }) } },
    );
    const wanted = ensure(podOf('p', ['a']));
    await settle();
    pulls[0]?.end();
    await wanted;
    assert.deepEqual(log, ['check ann', `starts ${IMAGE}`, `pulled ${IMAGE} a`]);
    log.length = 0;
    const denied = ensure(podOf('q', ['a']));
    await settle();
    pulls[1]?.end(new Error('denied'));
    await assert.rejects(denied, refused('ErrImagePull', 'denied'));
    assert.deepEqual(log, ['check ann', `starts ${IMAGE}`, 'failed']);
    await assert.rejects(ensure(podOf('q', ['a'])), refused('ImagePullBackOff', /ErrImagePull: denied$/));
  });

  it('is reported as accessible', async () => {
    const verification = { mustPull: () => Promise.resolve(false) } as unknown as PullVerification;
    const { ensure, events } = setUp({ verification }, { present: [IMAGE] });
    await ensure(podOf('p'));
    assert.deepEqual(events, [
      `Normal Pulled Container image "${IMAGE}" already present on machine and can be accessed by the pod`,
    ]);
  });
});

describe('a pull', () => {
  it('that fails is retried after 10 s, doubling, and reports the reason meanwhile', async () => {
    const { ensure, pulls, settle, clock, events } = setUp();
    const why = 'manifest unknown';
    for (const seconds of [10, 20, 40]) {
      const wanted = ensure(podOf('p'));
      await settle();
      pulls.at(-1)?.end(new Error(why));
      await assert.rejects(wanted, refused('ErrImagePull', why));
      await clock.advance(seconds * 1000 - 1);
      await assert.rejects(
        ensure(podOf('p')),
        refused('ImagePullBackOff', `Back-off pulling image "${IMAGE}": ErrImagePull: ${why}`),
      );
      await clock.advance(1);
    }
    assert.equal(pulls.length, 3);
    assert.ok(events.includes(`Warning Failed Failed to pull image "${IMAGE}": ${why}`));
    assert.ok(events.includes(`Normal BackOff Back-off pulling image "${IMAGE}"`));
  });

  for (const [failure, reason, message] of [
    [
      'RegistryUnavailable: 503',
      'RegistryUnavailable',
      `image pull failed for ${IMAGE} because the registry is unavailable: 503`,
    ],
    [
      'rpc error: code = Unknown desc = SignatureValidationFailed: bad',
      'SignatureValidationFailed',
      `image pull failed for ${IMAGE} because the signature validation failed: bad`,
    ],
  ] as const)
    it(`has the runtime's reason ${reason}`, async () => {
      const { ensure, pulls, settle } = setUp();
      const wanted = ensure(podOf('p'));
      await settle();
      pulls[0]?.end(new Error(failure));
      await assert.rejects(wanted, refused(reason, message));
    });

  it('is shared by pods that request one image at the same time without credentials', async () => {
    const { ensure, pulls, settle } = setUp();
    const wanted = ['p', 'q', 'r'].map((name) => ensure(podOf(name)));
    await settle();
    assert.equal(pulls.length, 1);
    pulls[0]?.end();
    await Promise.all(wanted);
  });

  it('continues for the other pods when the pod that started it is deleted, and is cancelled with the last one', async () => {
    const { ensure, pulls, settle, events } = setUp();
    const [first, second] = [new AbortController(), new AbortController()];
    const deleted = assert.rejects(ensure(podOf('p'), IMAGE, 'IfNotPresent', first.signal), /deleted/);
    const wanted = ensure(podOf('q'), IMAGE, 'IfNotPresent', second.signal);
    await settle();
    first.abort(new Error('deleted'));
    await deleted;
    pulls[0]?.end();
    await wanted;
    assert.deepEqual([pulls.length, events.filter((line) => line.startsWith('Warning'))], [1, []]);
    const alone = new AbortController();
    const last = assert.rejects(ensure(podOf('r'), 'app:2', 'IfNotPresent', alone.signal), /deleted/);
    await settle();
    alone.abort(new Error('deleted'));
    await last;
    const again = ensure(podOf('r'), 'app:2');
    await settle();
    assert.equal(pulls.length, 3, 'a pull that was cancelled is not shared');
    pulls[2]?.end();
    await again;
  });

  for (const [what, changes, atOnce] of [
    ['serial', { serialPulls: true }, 1],
    ['at most two at a time', { maxParallelPulls: 2 }, 2],
    ['as many as are wanted', {}, 4],
  ] as const)
    it(`waits its turn: ${what}`, async () => {
      const { ensure, pulls, settle } = setUp(changes);
      const wanted = [1, 2, 3, 4].map((tag) => ensure(podOf('p'), `app:${tag}`));
      let ended = 0;
      for (let left = 4; left > 0; left--) {
        await settle();
        assert.equal(pulls.length - ended, Math.min(atOnce, left));
        pulls[ended++]?.end();
      }
      await Promise.all(wanted);
    });

  it('beyond the rate of the registry is refused, as the kubelet does', async () => {
    const { ensure, pulls, settle, clock } = setUp({ registryQps: 1, registryBurst: 2 });
    const wanted = [1, 2].map((tag) => ensure(podOf('p'), `app:${tag}`));
    await settle();
    await assert.rejects(ensure(podOf('p'), 'app:3'), refused('ErrImagePull', 'pull QPS exceeded'));
    await clock.advance(1_000);
    wanted.push(ensure(podOf('p'), 'app:4'));
    await settle();
    assert.equal(pulls.length, 3);
    for (const pull of pulls) pull.end();
    await Promise.all(wanted);
  });

  it('tries the credentials of all secrets, the most specific first, then those of plugins', async () => {
    const plugin: PullCredential = { auth: { username: 'plugin', password: 'p' }, source: undefined, hash: '' };
    const { ensure, pulls, settle } = setUp(
      { providers: () => Promise.resolve([plugin]) },
      {
        secrets: {
          a: secretOf({
            'reg.example.com': login('registry'),
            'reg.example.com/team': login('team'),
            other: login('x'),
          }),
          b: secretOf({ 'https://reg.example.com/v1/': login('old') }, '.dockercfg'),
        },
      },
    );
    const wanted = ensure(podOf('p', ['a', 'b', 'missing']));
    for (let index = 0; index < 4; index++) {
      await settle();
      pulls[index]?.end(new Error('unauthorized'));
    }
    // If all errors are the same, the message contains the text once.
    await assert.rejects(wanted, refused('ErrImagePull', 'unauthorized'));
    assert.deepEqual(
      pulls.map(({ auth }) => auth?.username),
      ['team', 'registry', 'old', 'plugin'],
    );
  });

  it('with a secret of thousands of entries for its image tries a hundred of them, and its error is short', async () => {
    const classes = Array.from({ length: 3000 }, (_, at) => `r[e${String.fromCodePoint(0x4e00 + at)}]g.example.com`);
    const secrets = { a: secretOf(Object.fromEntries(classes.map((pattern) => [pattern, login('ann')]))) };
    const { ensure, pulls, settle } = setUp({}, { secrets });
    const wanted = assert.rejects(ensure(podOf('p', ['a'])), (error: Error) => error.message.length <= 8192);
    for (let ended = 0; ended < 100; ended++) {
      await settle();
      pulls[ended]?.end(new Error(`${ended} ${'no '.repeat(2000)}`));
    }
    await wanted;
    assert.equal(pulls.length, 100);
  });

  it('from a registry that sends byte by byte for ever is given up after a day, and tried again later', async () => {
    const secrets = { a: secretOf({ 'reg.example.com': login('ann') }) };
    const { ensure, pulls, settle, clock } = setUp({ serialPulls: true }, { secrets });
    const wanted = assert.rejects(
      ensure(podOf('p', ['a'])),
      refused('ErrImagePull', 'the pull was given up after 24 hours'),
    );
    await settle();
    await clock.advance(24 * 3_600_000 - 1);
    assert.equal(pulls.length, 1);
    await clock.advance(1);
    await wanted;
    await clock.advance(60_000);
    void ensure(podOf('p', ['a'])).catch(() => undefined);
    await settle();
    assert.equal(pulls.length, 2);
  });

  it('that waits for its turn ends when its pod is deleted, also with credentials of its own', async () => {
    const { ensure, settle, pulls } = setUp(
      { serialPulls: true },
      { secrets: { a: secretOf({ 'reg.example.com': login('ann') }) } },
    );
    void ensure(podOf('p'), 'other:1').catch(() => undefined);
    await settle();
    const deleted = new AbortController();
    const waiting = assert.rejects(ensure(podOf('q', ['a']), IMAGE, 'IfNotPresent', deleted.signal), /cancelled/);
    await settle();
    deleted.abort(new Error('deleted'));
    await waiting;
    assert.equal(pulls.length, 1);
  });

  it('of a digest requests the digest', async () => {
    const pinned = `reg.example.com/app@sha256:${'a'.repeat(64)}`;
    const { ensure, pulls, settle } = setUp();
    const wanted = ensure(podOf('p'), pinned);
    await settle();
    pulls[0]?.end();
    await wanted;
    assert.equal(pulls[0]?.image, pinned);
  });
});

describe('the image of a volume', () => {
  it('is pulled by the policy of its own volume', async () => {
    const { manager, requests } = setUp({}, { present: ['a:1'] });
    const { signal } = new AbortController();
    const never = { reference: 'b:1', pullPolicy: 'Never' };
    await assert.rejects(
      manager.ensureVolumeImage(podOf('p'), never, signal),
      refused('ErrImageNeverPull', 'Container image "b:1" is not present with pull policy of Never'),
    );
    assert.equal(await manager.ensureVolumeImage(podOf('p'), { ...never, reference: 'a:1' }, signal), 'a:1');
    assert.deepEqual(requests, ['Never false undefined', 'Never true false']);
  });
});
