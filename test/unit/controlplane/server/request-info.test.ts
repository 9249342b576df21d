/** Parsing requests: authorization and routing use the same table. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { parseRequestPath, RequestPathError } from '../../../../api/http/request-path.ts';
import { isStatusError } from '../../../../api/meta/status-error.ts';
import { parseRequestInfo, type RequestInfo, RequestInfoError } from '../../../../controlplane/server/request-info.ts';

function read(method: string, target: string): RequestInfo {
  const [path = '', query = ''] = target.split('?');
  return parseRequestInfo(method, parseRequestPath(path), () => new URLSearchParams(query));
}

const short = (info: RequestInfo): string =>
  info.isResource
    ? `${info.verb} ${info.group}/${info.version} ns=${info.namespace} ${info.resource}/${info.subresource} name=${info.name}`
    : `${info.verb} ${info.path}`;

const TABLE: readonly [string, string, string][] = [
  ['GET', '/api/v1/pods', 'list /v1 ns= pods/ name='],
  ['GET', '/api/v1/pods?watch=1', 'watch /v1 ns= pods/ name='],
  ['GET', '/api/v1/pods?watch=false', 'list /v1 ns= pods/ name='],
  ['GET', '/api/v1/namespaces/n/pods/p', 'get /v1 ns=n pods/ name=p'],
  ['GET', '/api/v1/namespaces/n/pods/p/', 'get /v1 ns=n pods/ name=p'],
  ['PUT', '/api/v1/namespaces/n/pods/p/status', 'update /v1 ns=n pods/status name=p'],
  ['POST', '/api/v1/namespaces/n/pods', 'create /v1 ns=n pods/ name='],
  ['DELETE', '/apis/apps/v1/namespaces/n/deployments', 'deletecollection apps/v1 ns=n deployments/ name='],
  ['GET', '/api/v1/namespaces/n', 'get /v1 ns=n namespaces/ name=n'],
  ['PUT', '/api/v1/namespaces/n/finalize', 'update /v1 ns=n namespaces/finalize name=n'],
  ['GET', '/api/v1/namespaces', 'list /v1 ns= namespaces/ name='],
  ['GET', '/api/v1/watch/namespaces/n/pods/p', 'watch /v1 ns=n pods/ name=p'],
  ['GET', '/api/v1/namespaces/n/services/s/proxy/a/b', 'get /v1 ns=n services/proxy name=s'],
  ['GET', '/api/v1/pods?fieldSelector=metadata.name=p', 'list /v1 ns= pods/ name=p'],
  ['GET', '/api/v1/pods?fieldSelector=metadata.name=a/b', 'list /v1 ns= pods/ name='],
  ['GET', '/api/v1/pods?fieldSelector=metadata.name%3Da\\,b', 'list /v1 ns= pods/ name=a,b'],
  ['GET', '/api/v1/pods?fieldSelector=status.phase%3Dx\\,metadata.name%3Dp', 'list /v1 ns= pods/ name='],
  ['DELETE', '/api/v1/proxy/namespaces/n/pods/p', 'delete /v1 ns= proxy/n name=namespaces'],
  ['HEAD', '/api/v1/namespaces/n/pods/p', 'get /v1 ns=n pods/ name=p'],
  ['OPTIONS', '/api/v1/namespaces/n/pods/p', ' /v1 ns=n pods/ name=p'],
  ['GET', '/api/v1/namespaces/a%2Fsecrets/b', 'get /v1 ns=a secrets/ name=b'],
  ['GET', '/api/v1//namespaces/n/pods', 'get /v1 ns= /n name=namespaces'],
  ['GET', '/api/v1/namespaces/n/pods/../secrets', 'get /v1 ns=n pods/secrets name=..'],
  ['GET', '/api/v1', 'get /api/v1'],
  ['GET', '/apis/apps/v1', 'get /apis/apps/v1'],
  ['POST', '/version', 'post /version'],
];

for (const [method, target, want] of TABLE) {
  test(`${method} ${target} is ${want}`, () => assert.equal(short(read(method, target)), want));
}

test('a path that is no percent-encoding, or ends after watch, names no resource', () => {
  for (const path of ['/api/v1/pods/%zz', '/api/v1/watch']) {
    assert.throws(
      () => read('GET', path),
      (error) => error instanceof RequestInfoError || error instanceof RequestPathError,
    );
  }
});

test('however a path is encoded, it is read as its decoded form', () => {
  const segment = fc.string({ minLength: 1, maxLength: 6 });
  fc.assert(
    fc.property(fc.array(segment, { minLength: 1, maxLength: 6 }), (segments) => {
      const plain = `/api/v1/${segments.join('/')}`;
      const encoded = `/api/v1/${encodeURIComponent(segments.join('/'))}`;
      const decodable = !plain.includes('%') && !plain.includes('?') && plain.isWellFormed();
      fc.pre(decodable);
      try {
        assert.deepEqual(read('GET', encoded), { ...read('GET', plain) });
      } catch (error) {
        if (!isStatusError(error) && !(error instanceof RequestPathError)) throw error;
      }
    }),
  );
});

test('the same path has another info for another method or query', () => {
  const path = parseRequestPath('/api/v1/namespaces/default/pods');
  const verbOf = (method: string, query = ''): string =>
    parseRequestInfo(method, path, () => new URLSearchParams(query)).verb;
  for (let turn = 0; turn < 2; turn += 1) {
    assert.equal(verbOf('GET'), 'list');
    assert.equal(verbOf('GET', 'watch=true'), 'watch');
    assert.equal(verbOf('POST'), 'create');
    assert.equal(verbOf('DELETE'), 'deletecollection');
  }
});
