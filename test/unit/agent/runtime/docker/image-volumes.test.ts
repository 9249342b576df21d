import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { it } from 'node:test';
import type { DockerClient } from '../../../../../agent/runtime/docker/docker-client.ts';
import { ImageVolumes } from '../../../../../agent/runtime/docker/image-volumes.ts';
import { LABEL_INSTANCE } from '../../../../../agent/runtime/instance.ts';
import type { Mount } from '../../../../../agent/runtime/runtime.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const mount: Mount = {
  containerPath: '/data',
  hostPath: '',
  readonly: true,
  recursiveReadOnly: false,
  propagation: 'private',
  seLinuxRelabel: false,
  image: 'sha256:1',
};

it('an image whose labels are those of a container of a pod makes no such container of its files', async () => {
  const directory = temporaryFolder();
  // Docker merges labels this way: those of the request override those of the image.
  const imageLabels = { [LABEL_INSTANCE]: 'this-agent', 'io.kubernetes.container.logpath': '/etc/cron.d/x' };
  let labels: Readonly<Record<string, string>> = {};
  const removals: object[] = [];
  const container = {
    remove: async (options: object) => void removals.push(options),
    export: async () => Readable.from([Buffer.alloc(1024)]),
  };
  const docker = {
    getContainer: () => container,
    createContainer: async (options: { readonly Labels?: Readonly<Record<string, string>> }) => {
      labels = { ...imageLabels, ...options.Labels };
      return container;
    },
  };
  const client = { docker, call: (_what: string, work: () => Promise<unknown>) => work() } as unknown as DockerClient;
  const bound = await new ImageVolumes(client, { emptiedLabels: async () => ({}) }, directory).bind(mount);
  assert.ok(bound.hostPath.startsWith(directory));
  assert.equal(labels[LABEL_INSTANCE], '');
  // The volumes that the image declares are removed with the container.
  for (const options of removals) assert.deepEqual(options, { force: true, v: true });
});

it('a sub-path that is a link of the image out of its files is refused, whatever spelling leads there', async () => {
  const directory = temporaryFolder();
  // The files of an image that was extracted before.
  const files = join(directory, 'image-volumes', createHash('sha256').update('sha256:1').digest('hex'));
  await mkdir(join(files, 'inner'), { recursive: true });
  const links = { absolute: '/etc', relative: '../../..', beside: `${files}-other`, inside: 'inner' };
  await mkdir(`${files}-other`);
  for (const [name, target] of Object.entries(links)) await symlink(target, join(files, name));
  const volumes = new ImageVolumes({} as DockerClient, { emptiedLabels: async () => ({}) }, directory);
  for (const imageSubPath of ['absolute', 'relative', 'beside', 'inner/../absolute', 'absolute/passwd'])
    await assert.rejects(volumes.bind({ ...mount, imageSubPath }), /leads out of the image/, imageSubPath);
  assert.equal((await volumes.bind({ ...mount, imageSubPath: 'inside' })).hostPath, join(files, 'inner'));
});

it('the files of a removed image stay while a container mounts them, also below a root directory that is a link', async () => {
  const directory = temporaryFolder();
  const files = join(directory, 'real', 'image-volumes', createHash('sha256').update('sha256:1').digest('hex'));
  await mkdir(files, { recursive: true });
  await symlink('real', join(directory, 'link'));
  let mounts = [{ Source: join(files, 'inner') }];
  const docker = { listContainers: async () => [{ Mounts: mounts }] };
  const client = { docker, call: (_what: string, work: () => Promise<unknown>) => work() } as unknown as DockerClient;
  const volumes = new ImageVolumes(client, { emptiedLabels: async () => ({}) }, join(directory, 'link'));
  await volumes.forget('sha256:1');
  assert.ok(existsSync(files));
  mounts = [];
  await volumes.forget('sha256:1');
  assert.ok(!existsSync(files));
});

it('an image is removed on a node on which no container has mounted an image', async () => {
  const volumes = new ImageVolumes({} as DockerClient, { emptiedLabels: async () => ({}) }, temporaryFolder());
  await assert.doesNotReject(volumes.forget('sha256:1'));
});
