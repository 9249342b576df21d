/** Request paths are parsed once, and the forwarded path is the authorized one. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import {
  apiForwardingFault,
  forwardingFault,
  parseRequestPath,
  rawAfter,
  RequestPathError,
  splitTarget,
} from '../../../../api/http/request-path.ts';

describe('a request path', () => {
  it('is decoded once and split at plain and encoded slashes', () => {
    const { decoded, segments } = parseRequestPath('/api/v1/namespaces/a%2Fsecrets/b%252F/');
    assert.equal(decoded, '/api/v1/namespaces/a/secrets/b%2F/');
    assert.deepEqual(segments, ['api', 'v1', 'namespaces', 'a', 'secrets', 'b%2F']);
  });

  it('keeps empty and dot segments', () => {
    assert.deepEqual(parseRequestPath('//a//../b').segments, ['a', '', '..', 'b']);
  });

  it('is refused with an invalid escape or a NUL character', () => {
    for (const raw of ['/%zz', '/a%00b', '/%e4'])
      assert.throws(() => parseRequestPath(raw), RequestPathError, `${raw} was read`);
  });

  it('is found in targets of every form', () => {
    assert.deepEqual(splitTarget('/a?b=c?d'), { path: '/a', query: 'b=c?d' });
    assert.deepEqual(splitTarget('https://host:1/a/b?c'), { path: '/a/b', query: 'c' });
    assert.deepEqual(splitTarget('/x?u=http://y/z'), { path: '/x', query: 'u=http://y/z' });
    assert.deepEqual(splitTarget('http://host?u=/y'), { path: 'http://host', query: 'u=/y' });
    assert.deepEqual(splitTarget('http://host'), { path: 'http://host', query: '' });
    assert.deepEqual(splitTarget('HTTPS://host/x'), { path: '/x', query: '' });
  });
});

describe('the rest of a raw path', () => {
  const cases: readonly [string, number, string][] = [
    ['/api/v1/p/proxy', 4, ''],
    ['/api/v1/p/proxy/', 4, '/'],
    ['/api/v1/p/proxy/a%2Fb?', 4, '/a%2Fb?'],
    ['/api%2Fv1/p/proxy/x%20y', 4, '/x%20y'],
    ['//api/v1/p/proxy//x', 4, '//x'],
  ];
  for (const [raw, count, want] of cases)
    it(`of ${raw} after ${count} segments is ${JSON.stringify(want)}`, () => {
      assert.equal(rawAfter(parseRequestPath(raw), count), want);
    });

  it('decodes to what follows the same number of decoded segments', () => {
    const segment = fc.constantFrom('a', 'b%20', '%2F', 'c%2fd', '%41', '..', '');
    fc.assert(
      fc.property(fc.array(segment, { minLength: 1, maxLength: 8 }), fc.nat(6), (parts, count) => {
        const path = parseRequestPath(`/x/${parts.join('/')}`);
        fc.pre(count >= 1 && count < path.segments.length);
        const rest = parseRequestPath(rawAfter(path, count)).decoded.replace(/^\//, '').replace(/\/+$/, '');
        assert.equal(rest, path.segments.slice(count).join('/'));
      }),
    );
  });
});

describe('a path that servers may read differently', () => {
  for (const raw of [
    '/a/../b',
    '/a/%2e%2e/b',
    '/a/%2E/b',
    '/a\\..\\b',
    '/a/%5c..',
    '/a%0d%0aX: y',
    '/a b',
    '/..',
    '/a#/b',
  ])
    it(`is not sent on: ${JSON.stringify(raw)}`, () => assert.notEqual(forwardingFault(raw), ''));
  for (const raw of ['/', '/a//b', '/a%2Fb', '/...', '/a.b/%20', '/é'])
    it(`is sent on where all servers read it alike: ${JSON.stringify(raw)}`, () =>
      assert.equal(forwardingFault(raw), ''));

  for (const raw of ['//apis%2Fg%2Fv1@host', '/apis/g//v1/x', '/apis/g/v1/a%2fb', '/apis/g/v1/a\\..\\b'])
    it(`is not sent to another API server: ${raw}`, () => {
      assert.notEqual(apiForwardingFault(parseRequestPath(raw)), '');
    });
  it('leaves ordinary paths of API groups alone', () => {
    assert.equal(apiForwardingFault(parseRequestPath('/apis/g/v1/namespaces/n/things/a:b/')), '');
  });
  it('may also be one with a fragment behind its query', () => {
    assert.notEqual(forwardingFault('/a', 'b=c#&d=e'), '');
    assert.equal(forwardingFault('/a%23', 'b=c%23&d=/?:@;,+e'), '');
  });
});

it('a path is parsed to the same value again, also after thousands of others', () => {
  const first = parseRequestPath('/api/v1/namespaces/a%2Fb/pods');
  for (let at = 0; at < 2000; at += 1) parseRequestPath(`/api/v1/namespaces/default/pods/pod-${at}`);
  assert.deepEqual(parseRequestPath('/api/v1/namespaces/a%2Fb/pods'), first);
  const long = `/api/v1/${'x'.repeat(1000)}`;
  assert.deepEqual(parseRequestPath(long).segments, ['api', 'v1', 'x'.repeat(1000)]);
});
