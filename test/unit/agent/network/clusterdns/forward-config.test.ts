import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { forwardConfig, stubServers } from '../../../../../agent/network/clusterdns/forward-config.ts';

const SURROUNDINGS = { domain: 'cluster.local', nameServers: ['10.96.0.10'] };
const read = (stubDomains?: unknown, upstreamNameservers?: unknown) =>
  forwardConfig(
    {
      ...(stubDomains === undefined ? {} : { stubDomains: JSON.stringify(stubDomains) }),
      ...(upstreamNameservers === undefined ? {} : { upstreamNameservers: JSON.stringify(upstreamNameservers) }),
    },
    SURROUNDINGS,
  );

describe('the configuration of the name server', () => {
  it('has servers for domains, among which the longest one counts, and servers for all other names', () => {
    const config = read({ 'Acme.local.': ['192.0.2.1', '192.0.2.2:5353'], 'lab.acme.local': ['2001:db8::1'] }, [
      '192.0.2.9',
    ]);
    assert.deepEqual(config.problems, []);
    assert.deepEqual(config.upstreams, ['192.0.2.9']);
    for (const [name, servers] of [
      ['acme.local', ['192.0.2.1', '192.0.2.2:5353']],
      ['WWW.acme.local.', ['192.0.2.1', '192.0.2.2:5353']],
      ['a.lab.acme.local', ['2001:db8::1']],
      ['notacme.local', undefined],
      ['local', undefined],
      ['', undefined],
    ] as const)
      assert.deepEqual(stubServers(config, name), servers, name);
  });

  it('is empty without a ConfigMap or without data', () => {
    for (const data of [undefined, {}, { stubDomains: ' ', upstreamNameservers: '' }])
      assert.deepEqual(forwardConfig(data, SURROUNDINGS), { stubDomains: new Map(), upstreams: [], problems: [] });
  });

  for (const [what, stubDomains, upstreams, problem] of [
    ['a list of domains', [], undefined, /stubDomains is not a JSON object/],
    [
      'a server that is a name',
      { 'acme.local': ['dns.acme.local'] },
      undefined,
      /"dns.acme.local", which is not the address/,
    ],
    ['a server that is an object', { 'acme.local': [{ a: 1 }] }, undefined, /which is not the address/],
    ['a port that does not exist', { 'acme.local': ['192.0.2.1:99999'] }, undefined, /which is not the address/],
    ['no list of servers', { 'acme.local': '192.0.2.1' }, undefined, /has no list of name servers/],
    ['a name that is no domain', { 'a b': ['192.0.2.1'] }, undefined, /"a b" is not a domain/],
    ['the root', { '.': ['192.0.2.1'] }, undefined, /"\." is not a domain/],
    ['the domain of the cluster', { 'svc.cluster.local': ['192.0.2.1'] }, undefined, /belongs to the cluster/],
    [
      'the name server of the cluster',
      { 'acme.local': ['10.96.0.10'] },
      undefined,
      /the name server of the cluster itself/,
    ],
    ['upstream servers that are no list', undefined, { a: 1 }, /upstreamNameservers has no list/],
    ['upstream servers that are no addresses', undefined, ['::zz'], /upstreamNameservers has "::zz"/],
  ] as const)
    it(`reports ${what}, and uses the rest`, () => {
      const config = read({ 'fine.local': ['192.0.2.7'], ...stubDomains }, upstreams);
      const found = Array.isArray(stubDomains) ? read(stubDomains, upstreams) : config;
      assert.match(found.problems.join('; '), problem);
      assert.deepEqual(found.upstreams, []);
      if (!Array.isArray(stubDomains)) assert.deepEqual([...config.stubDomains.keys()], ['fine.local']);
    });

  it('reports text that is not JSON, and more servers than are used', () => {
    assert.match(forwardConfig({ stubDomains: '{' }, SURROUNDINGS).problems.join(), /stubDomains is not valid JSON/);
    const config = read(undefined, ['192.0.2.1', '192.0.2.2', '192.0.2.3', '192.0.2.4']);
    assert.deepEqual([config.upstreams.length, config.problems.length], [3, 1]);
    const many = Object.fromEntries(Array.from({ length: 1001 }, (_, at) => [`d${at}.local`, ['192.0.2.1']]));
    assert.equal(read(many).stubDomains.size, 1000);
  });
});
