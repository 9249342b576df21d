import assert from 'node:assert/strict';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, describe, it } from 'node:test';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import { podIdRange, UserNamespaces } from '../../../../../agent/runtime/kuberuntime/user-namespaces.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

const IDS = 65_536;
const podOf = (uid: string, hostUsers?: boolean): Pod =>
  ({ metadata: { name: uid, namespace: 'ns', uid }, spec: { containers: [], hostUsers } }) as unknown as Pod;

describe('user namespaces of pods', () => {
  let root = '';
  const open = (pods = 4): UserNamespaces =>
    new UserNamespaces({ rootDirectory: root, idsPerPod: IDS, range: { firstId: IDS, length: pods * IDS } });
  const firstId = async (of: UserNamespaces, uid: string): Promise<number | undefined> =>
    (await of.mapping(podOf(uid, false)))?.uids.hostId;
  beforeEach(async () => {
    root = temporaryFolder();
  });

  it('are allocated to pods that request one', async () => {
    assert.equal(await open().mapping(podOf('a')), undefined);
    assert.equal(await open().mapping(podOf('a', true)), undefined);
    const ids = { hostId: IDS, containerId: 0, length: IDS };
    assert.deepEqual(await open().mapping(podOf('a', false)), { uids: ids, gids: ids });
  });
  it('never share ids, however many are allocated at once', async () => {
    const all = open();
    const given = await Promise.all(['a', 'b', 'c'].map((uid) => firstId(all, uid)));
    assert.deepEqual(given, [IDS, 2 * IDS, 3 * IDS]);
  });
  it('are kept over a restart, in the form of the kubelet', async () => {
    await firstId(open(), 'a');
    await firstId(open(), 'b');
    const again = open();
    assert.deepEqual([await firstId(again, 'b'), await firstId(again, 'c')], [2 * IDS, 3 * IDS]);
    const mappings = [{ hostId: 2 * IDS, containerId: 0, length: IDS }];
    assert.deepEqual(JSON.parse(await readFile(join(root, 'pods', 'b', 'userns'), 'utf8')), {
      uidMappings: mappings,
      gidMappings: mappings,
    });
  });
  it('are free again with the directory of their pod, and refused where none is', async () => {
    const all = open(2);
    await firstId(all, 'a');
    await firstId(all, 'b');
    await assert.rejects(firstId(all, 'c'), /could not find an empty slot/);
    await rm(join(root, 'pods', 'a'), { recursive: true });
    assert.equal(await firstId(all, 'c'), IDS);
  });
  for (const [what, text, problem] of [
    ['is damaged', '{', /pods\/a\/userns: not JSON; delete the pod, then remove the file/],
    ['maps other ids of groups', mapping({ gid: 3 * IDS }), /users and groups differ/],
    ['maps the ids of the host', mapping({ uid: 0, gid: 0 }), /0 is out of range/],
    ['has another length', mapping({ length: 10 }), /10 ids where a pod has 65536/],
  ] as const) {
    it(`are not taken from a file that ${what}`, async () => {
      await firstId(open(), 'a');
      await writeFile(join(root, 'pods', 'a', 'userns'), text);
      await assert.rejects(firstId(open(), 'a'), problem);
    });
  }
});

function mapping({ uid = IDS, gid = IDS, length = IDS }): string {
  const of = (hostId: number): object[] => [{ hostId, containerId: 0, length }];
  return JSON.stringify({ uidMappings: of(uid), gidMappings: of(gid) });
}

describe('the ids that a host has for pods', () => {
  const size = { idsPerPod: IDS, maxPods: 110 };
  const passwd = 'root:x:0:0::/root:/bin/sh\nkubelet:x:990:990::/:/bin/false\n';
  const range = (subuid: string, subgid = subuid, from = passwd): ReturnType<typeof podIdRange> =>
    podIdRange({ passwd: from, subuid, subgid }, size);
  it('are all ids but those of the host, if none are configured', () => {
    const all = { firstId: IDS, length: 65_534 * IDS };
    assert.deepEqual(range('kubelet:65536:7208960\n', undefined, 'root:x:0:0::/root:/bin/sh\n'), all);
    assert.deepEqual(range('somebody:65536:65536\n'), all);
  });
  it("are the user kubelet's where it has some", () => {
    assert.deepEqual(range('x:1:2\nkubelet:131072:7208960\n'), { firstId: 131_072, length: 110 * IDS });
  });
  for (const [line, problem] of [
    ['kubelet:65537:7208960', /not multiples of 65536/],
    ['kubelet:0:7208960', /begin before 65536/],
    ['kubelet:65536:65536', /not enough for 110 pods/],
    ['kubelet:65536:x', /one line in \/etc\/subuid/],
  ] as const) {
    it(`are refused as ${line}`, () => assert.throws(() => range(line), problem));
  }
  it('are refused where users and groups differ', () => {
    assert.throws(() => range('kubelet:65536:7208960', 'kubelet:131072:7208960'), /users and those of groups differ/);
  });
});
