import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import type { ReferencedObjects } from '../../../../../agent/base/model/referenced-objects.ts';
import { DockerConfigError, loginsOf } from '../../../../../agent/runtime/images/docker-config.ts';
import { pullCredentials } from '../../../../../agent/runtime/images/pull-credentials.ts';
import type { KubeObject } from '../../../../../api/meta/object.ts';

const base64 = (text: string): string => Buffer.from(text).toString('base64');
const logins = (entry: unknown) => loginsOf(JSON.stringify({ auths: { 'reg.example.com': entry } }), 'config.json');

describe('registry credentials of a user', () => {
  for (const [what, text] of [
    ['text that is no JSON', 'hunter2:s3cret'],
    ['a text', '"s3cret"'],
    ['a list', '["s3cret"]'],
    ['auths that are a text', '{"auths":"s3cret"}'],
    ['auths that are a list', '{"auths":["s3cret"]}'],
    ['an entry that is a text', '{"auths":{"reg.example.com":"s3cret"}}'],
    ['a password that is an object', '{"auths":{"reg.example.com":{"username":"u","password":{"s3cret":1}}}}'],
    ['an auth that is a number', '{"auths":{"reg.example.com":{"auth":31337}}}'],
    ['an auth that is no base64', '{"auths":{"reg.example.com":{"auth":"s3cret!:"}}}'],
    ['an auth without a colon', `{"auths":{"reg.example.com":{"auth":"${base64('s3cret')}"}}}`],
  ] as const)
    it(`are refused as ${what}, by an error that shows nothing of them`, () => {
      assert.throws(
        () => loginsOf(text, 'config.json'),
        (error) => error instanceof DockerConfigError && !/hunter2|s3cret|31337/.test(error.message),
      );
    });

  it('may be null, without a password, or padded or not', () => {
    assert.deepEqual(loginsOf('{"auths":null}', 'config.json'), []);
    const [username, password, email, identityToken] = ['u', 'p:q', '', ''];
    for (const auth of [base64('u:p:q'), base64('u:p:q').replace(/=+$/, '')])
      assert.deepEqual(logins({ auth, username: 'ignored' }), [
        ['reg.example.com', { username, password, email, identityToken }],
      ]);
    assert.deepEqual(logins(null), [['reg.example.com', { username: '', password: '', email, identityToken }]]);
  });

  it('have the version of the registry API before the path only', () => {
    const keys = ['https://reg/v1/', 'reg/v2/team', 'reg/team/v2', 'https://index.docker.io/v1/', 'docker.io/team'];
    const found = loginsOf(JSON.stringify(Object.fromEntries(keys.map((key) => [key, {}]))), 'dockercfg');
    assert.deepEqual(
      found.map(([pattern]) => pattern),
      ['reg', 'reg/team', 'reg/team/v2', 'docker.io', 'docker.io/team'],
    );
  });
});

describe('image pull secrets', () => {
  const pod: Pod = {
    metadata: { name: 'p', namespace: 'ns', uid: 'u' },
    spec: { containers: [], imagePullSecrets: [{ name: 's' }] },
  };
  const credentials = (type: string, auths: object) =>
    pullCredentials('reg.example.com/app', pod, {
      secret: () =>
        Promise.resolve({
          metadata: { name: 's', namespace: 'ns', uid: 'uid-s' },
          type,
          data: { '.dockerconfigjson': base64(JSON.stringify({ auths })) },
        } as unknown as KubeObject),
    } as unknown as ReferencedObjects);

  it('of another type have no credentials, as with the kubelet', async () => {
    assert.deepEqual(await credentials('Opaque', { 'reg.example.com': { username: 'u' } }), []);
  });

  it('with different identity tokens are different credentials, though user and password are the same', async () => {
    const hash = async (identitytoken: string): Promise<string | undefined> => {
      const auth = base64('00000000-0000-0000-0000-000000000000:');
      const [found] = await credentials('kubernetes.io/dockerconfigjson', {
        'reg.example.com': { auth, identitytoken },
      });
      assert.equal(found?.auth.identityToken ?? '', identitytoken);
      return found?.hash;
    };
    assert.equal(new Set([await hash('own'), await hash('of another'), await hash('')]).size, 3);
  });

  it('are tried in the order of the kubelet: the last pattern first', async () => {
    const patterns = ['*.example.com', 'reg.example.com', 'reg.example.com/app', 'r[e]g.example.com'];
    const auths = Object.fromEntries(patterns.map((pattern) => [pattern, { username: pattern }]));
    assert.deepEqual(
      (await credentials('kubernetes.io/dockerconfigjson', auths)).map(({ auth }) => auth.username),
      ['reg.example.com/app', 'reg.example.com', 'r[e]g.example.com', '*.example.com'].toSorted().toReversed(),
    );
  });
});
