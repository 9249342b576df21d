import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Pod, Volume } from '../../../../agent/base/model/pod.ts';
import { type PayloadSources, volumePayload } from '../../../../agent/volumes/payload.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';

function podWith(
  securityContext: Pod['spec']['securityContext'] = {},
  users: (number | undefined)[] = [undefined],
): Pod {
  return {
    metadata: { name: 'p', namespace: 'ns', uid: 'u' },
    spec: {
      ...(securityContext === undefined ? {} : { securityContext }),
      containers: users.map((runAsUser, index) => ({
        name: `c${index}`,
        ...(runAsUser === undefined ? {} : { securityContext: { runAsUser } }),
      })),
    },
  };
}

const configMap = { metadata: { name: 'cm' }, data: { a: 'A', b: 'B' }, binaryData: { bin: 'AAEC' } } as KubeObject;
const secret = { metadata: { name: 's' }, data: { user: Buffer.from('me').toString('base64') } } as KubeObject;

const sources: PayloadSources = {
  objects: {
    registerPod: () => undefined,
    unregisterPod: () => undefined,
    configMap: async (_namespace, name) => (name === 'cm' ? configMap : undefined),
    secret: async (_namespace, name) => (name === 's' ? secret : undefined),
  },
  token: async (_pod, spec) => `token for ${spec.audience ?? 'the API'} for ${spec.expirationSeconds} s`,
  fieldValue: (pod, path) => `${path} of ${pod.metadata.name}`,
  resourceValue: (_pod, container, resource, divisor) => `${container.name} ${resource} by ${divisor}`,
};

async function files(volume: Omit<Volume, 'name'>, pod = podWith()): Promise<Record<string, string>> {
  const payload = await volumePayload(pod, { name: 'v', ...volume }, sources);
  return Object.fromEntries(
    [...(payload ?? [])].map(([path, file]) => [path, `${file.mode.toString(8)} ${file.content.toString('latin1')}`]),
  );
}

describe('the payload of a volume', () => {
  it('holds all keys of a config map, binary ones decoded', async () => {
    assert.deepEqual(await files({ configMap: { name: 'cm' } }), {
      a: '644 A',
      b: '644 B',
      bin: '644 \u0000\u0001\u0002',
    });
  });

  it('has only the items if there are any, at their paths with their modes', async () => {
    const items = [
      { key: 'a', path: 'deep/x', mode: 0o400 },
      { key: 'b', path: 'y' },
    ];
    assert.deepEqual(await files({ configMap: { name: 'cm', items, defaultMode: 0o600 } }), {
      'deep/x': '400 A',
      y: '600 B',
    });
  });

  const missing: [string, Omit<Volume, 'name'>, string][] = [
    ['a config map', { configMap: { name: 'no' } }, 'configmap "no" not found'],
    ['a secret', { secret: { secretName: 'no' } }, 'secret "no" not found'],
    [
      'a key of a config map',
      { configMap: { name: 'cm', items: [{ key: 'no', path: 'x' }] } },
      'configmap references non-existent config key: no',
    ],
    [
      'a key of a secret',
      { secret: { secretName: 's', items: [{ key: 'no', path: 'x' }] } },
      'references non-existent secret key: no',
    ],
    [
      'several sources of a projection',
      { projected: { sources: [{ secret: { name: 'no' } }, { configMap: { name: 'no' } }] } },
      '[secret "no" not found, configmap "no" not found]',
    ],
  ];
  for (const [what, volume, message] of missing) {
    it(`names ${what} that is missing`, async () => {
      await assert.rejects(files(volume), { message });
    });
  }

  it('omits missing optional objects', async () => {
    assert.deepEqual(await files({ secret: { secretName: 'no', optional: true } }), {});
    const items = [
      { key: 'no', path: 'x' },
      { key: 'a', path: 'y' },
    ];
    assert.deepEqual(await files({ configMap: { name: 'cm', items, optional: true } }), { y: '644 A' });
  });

  it('projects all sources into one tree', async () => {
    const projected = {
      defaultMode: 0o440,
      sources: [
        { configMap: { name: 'cm', items: [{ key: 'a', path: 'a' }] } },
        { secret: { name: 's' } },
        {
          downwardAPI: {
            items: [
              { path: 'labels', fieldRef: { fieldPath: 'metadata.labels' } },
              {
                path: 'cpu',
                mode: 0o400,
                resourceFieldRef: { containerName: 'c0', resource: 'limits.cpu', divisor: '1m' },
              },
            ],
          },
        },
        { serviceAccountToken: { path: 'token' } },
      ],
    };
    assert.deepEqual(await files({ projected }), {
      a: '440 A',
      user: '440 me',
      labels: '440 metadata.labels of p',
      cpu: '400 c0 limits.cpu by 1m',
      token: '440 token for the API for 3600 s',
    });
  });

  const tokens: [string, Pod, { mode: number; uid: number | undefined }][] = [
    ['has the default mode where nothing says who reads it', podWith(), { mode: 0o644, uid: undefined }],
    ['belongs to the one user of all containers', podWith({}, [7, 7]), { mode: 0o600, uid: 7 }],
    ['belongs to the user of the pod', podWith({ runAsUser: 9 }, [undefined]), { mode: 0o600, uid: 9 }],
    ['has the default mode where users differ', podWith({}, [7, 8]), { mode: 0o644, uid: undefined }],
    ['is private where the volume has a group', podWith({ fsGroup: 5 }), { mode: 0o600, uid: undefined }],
    ['belongs to the user also where there is a group', podWith({ fsGroup: 5, runAsUser: 9 }), { mode: 0o600, uid: 9 }],
  ];
  for (const [what, pod, wanted] of tokens) {
    it(`of a token ${what}`, async () => {
      const volume = { name: 'v', projected: { sources: [{ serviceAccountToken: { path: 'token' } }] } };
      const file = (await volumePayload(pod, volume, sources))?.get('token');
      assert.deepEqual({ mode: file?.mode, uid: file?.uid }, wanted);
    });
  }

  it('has nothing of a projected source whose kind the API server does not know', async () => {
    const volume = { name: 'v', projected: { sources: [{}, { serviceAccountToken: { path: 'token' } }] } };
    assert.deepEqual([...((await volumePayload(podWith(), volume, sources))?.keys() ?? [])], ['token']);
  });

  it('is none of other kinds of volumes', async () => {
    assert.equal(await volumePayload(podWith(), { name: 'v', emptyDir: {} }, sources), undefined);
  });
});
