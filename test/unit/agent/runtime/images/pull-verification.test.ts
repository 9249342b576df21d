import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import {
  type CredentialSource,
  type PullCredential,
  credentialHash,
} from '../../../../../agent/runtime/images/pull-credentials.ts';
import { PullRecords } from '../../../../../agent/runtime/images/pull-records.ts';
import {
  allowlistProblem,
  mustVerify,
  PullVerification,
  type VerificationPolicy,
} from '../../../../../agent/runtime/images/pull-verification.ts';
import type { ImageInfo } from '../../../../../agent/runtime/runtime.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const IMAGE = 'reg.example.com/team/app:1';
const ID = 'sha256:app';
const fileOf = (key: string): string => `sha256-${createHash('sha256').update(key).digest('hex')}`;

const secret = (name: string, password = 'p', uid = `uid-${name}`): PullCredential => ({
  auth: { username: 'u', password },
  source: { kind: 'secret', uid, namespace: 'ns', name },
  hash: credentialHash({ username: 'u', password }),
});
const account = (name: string): PullCredential => ({
  auth: { username: 'u', password: 'p' },
  source: { kind: 'serviceAccount', uid: `uid-${name}`, namespace: 'ns', name } satisfies CredentialSource,
  hash: '',
});

async function setUp(policy: VerificationPolicy = 'NeverVerifyPreloadedImages', allowlist: string[] = []) {
  const root = temporaryFolder();
  const clock = new FakeClock();
  const checks: string[] = [];
  const open = async (): Promise<PullVerification> => {
    const records = new PullRecords(root, silentLogger);
    await records.load();
    return new PullVerification({
      policy,
      allowlist,
      records,
      clock,
      logger: silentLogger,
      onCheck: (result) => void checks.push(result),
    });
  };
  const files = async (folder: 'pulling' | 'pulled'): Promise<Record<string, unknown>> => {
    const directory = join(root, 'image_manager', folder);
    const found: Record<string, unknown> = {};
    for (const name of await readdir(directory))
      found[name] = JSON.parse(await readFile(join(directory, name), 'utf8')) as unknown;
    return found;
  };
  const pull = async (verification: PullVerification, used: PullCredential | undefined): Promise<void> => {
    await verification.starts(IMAGE);
    await verification.pulled(IMAGE, ID, used);
  };
  const asks = (verification: PullVerification, ...given: PullCredential[]): Promise<boolean> =>
    verification.mustPull(IMAGE, ID, () => Promise.resolve(given));
  return { root, clock, checks, open, files, pull, asks };
}

describe('an image on the node', () => {
  it('that was not pulled is usable for every pod, and one that was pulled is not', async () => {
    const { open, pull, asks, checks } = await setUp();
    const verification = await open();
    assert.equal(await asks(verification), false);
    await pull(verification, secret('a'));
    assert.equal(await asks(verification), true);
    assert.deepEqual(checks, ['credentialPolicyAllowed', 'mustAuthenticate']);
  });

  it('that was pulled without credentials is for every pod', async () => {
    const { open, pull, asks, checks } = await setUp();
    const verification = await open();
    await pull(verification, undefined);
    assert.equal(await asks(verification), false);
    assert.deepEqual(checks, ['credentialRecordFound']);
    // The image remains usable for all pods after a pull with credentials.
    await pull(verification, secret('a'));
    assert.equal(await asks(verification), false);
  });

  it('is for pods with the same secret, the same credentials or a new content of the same secret', async () => {
    const { open, pull, asks, files } = await setUp();
    const verification = await open();
    await pull(verification, secret('a'));
    assert.equal(await asks(verification, secret('a')), false);
    assert.equal(await asks(verification, secret('b')), false, 'the same password in another secret');
    assert.equal(await asks(verification, secret('c', 'other')), true);
    assert.equal(await asks(verification, secret('a', 'rotated')), false, 'the secret that was good has changed');
    // Credentials that were verified by a pull are remembered.
    assert.equal(await asks(verification, secret('d', 'rotated')), false);
    const record = (await files('pulled'))[fileOf(ID)] as { credentialMapping: Record<string, object> };
    assert.deepEqual(record.credentialMapping['reg.example.com/team/app'], {
      kubernetesSecrets: [secret('a', 'rotated'), secret('b'), secret('d', 'rotated')].map(({ source, hash }) => ({
        uid: source?.uid,
        namespace: source?.namespace,
        name: source?.name,
        credentialHash: hash,
      })),
    });
  });

  it('is not for new content of a secret whose record has a hundred secrets, until a pull has verified it', async () => {
    const { open, pull, asks } = await setUp();
    const verification = await open();
    for (let at = 0; at < 100; at++) await pull(verification, secret(`s${at}`, `p${at}`));
    assert.equal(await asks(verification, secret('s7', 'p7')), false);
    assert.equal(await asks(verification, secret('s7', 'rotated')), true);
    await pull(verification, secret('s7', 'rotated'));
    assert.equal(await asks(verification, secret('s7', 'rotated')), false);
  });

  it('is for pods of the same service account where a plugin gave the credentials', async () => {
    const { open, pull, asks } = await setUp();
    const verification = await open();
    await pull(verification, account('robot'));
    assert.equal(await asks(verification, account('robot')), false);
    assert.equal(await asks(verification, account('other')), true);
    assert.equal(await asks(verification), true);
  });

  it('is another one by another name', async () => {
    const { open, pull } = await setUp();
    const verification = await open();
    await pull(verification, secret('a'));
    const given = (): Promise<PullCredential[]> => Promise.resolve([secret('a')]);
    assert.equal(await verification.mustPull('reg.example.com/other:1', ID, given), true);
    assert.equal(await verification.mustPull('reg.example.com/team/app:2', ID, given), false, 'the tag does not count');
  });

  it('of a pull that was cut short is nobody’s after a restart', async () => {
    const { open, asks, files } = await setUp();
    const first = await open();
    await first.starts(IMAGE);
    assert.deepEqual(await files('pulling'), {
      [fileOf(IMAGE)]: {
        kind: 'ImagePullIntent',
        apiVersion: 'kubelet.config.k8s.io/v1beta1',
        image: IMAGE,
      },
    });
    const second = await open();
    const image = { id: ID, repoTags: [IMAGE], repoDigests: [] } as unknown as ImageInfo;
    await second.recordInterrupted(() => Promise.resolve([image]));
    assert.deepEqual(await files('pulling'), {});
    assert.equal(await asks(second), true);
    assert.equal(await asks(second, secret('a')), true);
  });

  it('whose record cannot be read has to be pulled', async () => {
    const { root, open, asks, checks, pull } = await setUp();
    await mkdir(join(root, 'image_manager/pulled'), { recursive: true });
    await writeFile(join(root, 'image_manager/pulled', fileOf(ID)), '{"kind":');
    const verification = await open();
    assert.equal(await asks(verification), true);
    assert.deepEqual(checks, ['error']);
    await pull(verification, undefined);
    assert.equal(await asks(verification), false);
  });
});

describe('records of pulls', () => {
  it('are the kubelet’s files, kept from others, and read in both versions', async () => {
    const { root, open, pull, files, clock, asks } = await setUp();
    const verification = await open();
    await pull(verification, secret('a'));
    const path = join(root, 'image_manager/pulled', fileOf(ID));
    assert.deepEqual(await files('pulled'), {
      [fileOf(ID)]: {
        kind: 'ImagePulledRecord',
        apiVersion: 'kubelet.config.k8s.io/v1beta1',
        lastUpdatedTime: `${new Date(clock.now()).toISOString().slice(0, 19)}Z`,
        imageRef: ID,
        credentialMapping: {
          'reg.example.com/team/app': {
            kubernetesSecrets: [
              {
                uid: 'uid-a',
                namespace: 'ns',
                name: 'a',
                credentialHash: createHash('sha256').update('{"username":"u","password":"p"}').digest('hex'),
              },
            ],
          },
        },
      },
    });
    assert.equal((await stat(path)).mode & 0o777, 0o600);
    await writeFile(path, (await readFile(path, 'utf8')).replace('v1beta1', 'v1alpha1'));
    const again = await open();
    assert.equal(await asks(again, secret('a')), false);
    assert.equal(await asks(again), true);
  });

  it('keep the intent until the last of several pulls has ended', async () => {
    const { open, files } = await setUp();
    const verification = await open();
    await Promise.all([verification.starts(IMAGE), verification.starts(IMAGE)]);
    await verification.failed(IMAGE);
    assert.equal(Object.keys(await files('pulling')).length, 1);
    await verification.pulled(IMAGE, ID, undefined);
    assert.deepEqual(await files('pulling'), {});
  });

  it('are removed when the image is gone, unless they are newer than the list of images', async () => {
    const { open, pull, files, clock } = await setUp();
    const verification = await open();
    await pull(verification, undefined);
    await verification.prune(new Set([ID]), clock.now() + 5_000);
    await verification.prune(new Set(), clock.now() - 5_000);
    assert.equal(Object.keys(await files('pulled')).length, 1);
    await verification.prune(new Set(), clock.now() + 5_000);
    assert.deepEqual(await files('pulled'), {});
  });

  it('without a time count as old', async () => {
    const { root, open, pull, files, clock } = await setUp();
    await pull(await open(), undefined);
    const path = join(root, 'image_manager/pulled', fileOf(ID));
    const { lastUpdatedTime: _time, ...others } = JSON.parse(await readFile(path, 'utf8')) as Record<string, unknown>;
    await writeFile(path, JSON.stringify(others));
    await (await open()).prune(new Set(), clock.now());
    assert.deepEqual(await files('pulled'), {});
  });
});

describe('imagePullCredentialsVerificationPolicy', () => {
  const allowlist = ['reg.example.com/team/app', 'other.example.com/*', 'docker.io/library/*'];
  const table: [VerificationPolicy, string, boolean, boolean][] = [
    ['NeverVerify', IMAGE, true, false],
    ['NeverVerifyPreloadedImages', IMAGE, true, true],
    ['NeverVerifyPreloadedImages', IMAGE, false, false],
    ['AlwaysVerify', IMAGE, false, true],
    ['NeverVerifyAllowlistedImages', IMAGE, true, false],
    ['NeverVerifyAllowlistedImages', 'reg.example.com/team/app2:1', false, true],
    ['NeverVerifyAllowlistedImages', 'other.example.com/any/thing@sha256:'.concat('0'.repeat(64)), true, false],
    ['NeverVerifyAllowlistedImages', 'busybox', true, false],
    ['NeverVerifyAllowlistedImages', 'team/busybox', true, true],
  ];
  for (const [policy, image, isOurs, expected] of table)
    it(`${policy} ${expected ? 'verifies' : 'does not verify'} ${image}${isOurs ? ' that the agent pulled' : ''}`, () =>
      assert.equal(mustVerify(policy, allowlist, image, isOurs), expected));

  it('AlwaysVerify has preloaded images pulled too', async () => {
    const { open, asks } = await setUp('AlwaysVerify');
    assert.equal(await asks(await open()), true);
  });

  for (const [pattern, problem] of [
    ['reg.example.com/team/app', undefined],
    ['reg.example.com/team/*', undefined],
    [' reg.example.com', /spaces/],
    ['', /too short/],
    ['/*', /hostname/],
    ['reg.example.com/*/app', /not a valid wildcard/],
    ['reg.example.com/te*', /not a valid wildcard/],
    ['reg.example.com/team/app:1', /neither tag nor digest/],
    ['busybox', /neither tag nor digest/],
    ['reg.example.com/TEAM', /failed to parse/],
  ] as const)
    it(`${problem === undefined ? 'takes' : 'refuses'} the entry ${JSON.stringify(pattern)}`, () => {
      const found = allowlistProblem(pattern);
      if (problem === undefined) assert.equal(found, undefined);
      else assert.match(found ?? '', problem);
    });
});
