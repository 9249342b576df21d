/**
 * Lists malicious requests with their expected responses. None may crash the server or block it for long.
 * `test/integration/bad-input.test.ts` sends each of them and checks the response. `npm run bench -- --only hostile` measures
 * for how long each of them blocks the event loop.
 */

import { MAX_VALUES } from '../../api/codec/limits.ts';

export interface HostileRequest {
  readonly name: string;
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE' | 'HEAD' | 'OPTIONS';
  readonly path: string;
  readonly type?: string;
  readonly accept?: string;
  /** Creates the body on demand, because some are megabytes large. */
  readonly body?: () => string | Buffer;
  /** Sends the body in chunks, without a content length. */
  readonly chunked?: true;
  readonly status: number | readonly number[];
  /** The pattern that the response must match. */
  readonly message?: RegExp;
}

const CORE = '/api/v1/namespaces/default';
/** The collection in which requests create ConfigMaps. */
export const MAPS = `${CORE}/configmaps`;
const PODS = `${CORE}/pods`;
const CRDS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions';
/** The collection of the custom resource that `PREPARED` defines. */
export const WILDS = '/apis/hostile.example.com/v1/namespaces/default/wilds';
/** The largest body that the server reads. */
export const LIMIT_BYTES = 3 * 1024 * 1024;

const JSON_TYPE = 'application/json';
const YAML_TYPE = 'application/yaml';
const PROTOBUF_TYPE = 'application/vnd.kubernetes.protobuf';
const JSON_PATCH = 'application/json-patch+json';
const MERGE_PATCH = 'application/merge-patch+json';
const STRATEGIC_PATCH = 'application/strategic-merge-patch+json';
const APPLY_PATCH = 'application/apply-patch+yaml';

const times = <T>(count: number, one: (at: number) => T): T[] => Array.from({ length: count }, (_, at) => one(at));

/** Repeats `one` between `head` and `tail` up to the maximum size and number of values of a body. */
function filled(head: string, one: (at: number) => string, tail: string): string {
  const parts: string[] = [];
  let size = head.length + tail.length;
  let values = 100;
  for (let at = 0; ; at += 1) {
    const part = one(at);
    values += Math.max(1, part.split(':').length - (part.startsWith('{') ? 0 : 1));
    if (values > MAX_VALUES) break;
    size += part.length + 1;
    if (size > LIMIT_BYTES) break;
    parts.push(part);
  }
  return head + parts.join(',') + tail;
}

const map = (name: string, rest: string): string =>
  `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"${name}"}${rest}}`;
const nested = (depth: number, open = '{"a":', middle = '1', close = '}'): string =>
  open.repeat(depth) + middle + close.repeat(depth);

/** The objects that the requests below need. The sender creates them. */
export const PREPARED: readonly { readonly path: string; readonly body: object }[] = [
  {
    path: CRDS,
    body: {
      apiVersion: 'apiextensions.k8s.io/v1',
      kind: 'CustomResourceDefinition',
      metadata: { name: 'wilds.hostile.example.com' },
      spec: {
        group: 'hostile.example.com',
        scope: 'Namespaced',
        names: { plural: 'wilds', singular: 'wild', kind: 'Wild', listKind: 'WildList' },
        versions: [
          {
            name: 'v1',
            served: true,
            storage: true,
            schema: {
              openAPIV3Schema: {
                type: 'object',
                'x-kubernetes-preserve-unknown-fields': true,
                properties: {
                  number: { type: 'integer', format: 'int64' },
                  keyed: {
                    type: 'array',
                    'x-kubernetes-list-type': 'map',
                    'x-kubernetes-list-map-keys': ['k'],
                    items: { type: 'object', required: ['k'], properties: { k: { type: 'string' } } },
                  },
                  set: { type: 'array', 'x-kubernetes-list-type': 'set', items: { type: 'string' } },
                  matched: { type: 'array', items: { type: 'string', pattern: '^(a+)+$' } },
                  closed: { type: 'object', properties: { known: { type: 'string' } } },
                },
              },
            },
          },
        ],
      },
    },
  },
  { path: MAPS, body: { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'patched' }, data: { a: 'x' } } },
  {
    path: WILDS,
    body: { apiVersion: 'hostile.example.com/v1', kind: 'Wild', metadata: { name: 'patched' }, list: [1], a: 'x' },
  },
];

const wild = (name: string, rest: string): string =>
  `{"apiVersion":"hostile.example.com/v1","kind":"Wild","metadata":{"name":"${name}"}${rest}}`;

const post = (name: string, path: string, body: () => string | Buffer, status: HostileRequest['status']) =>
  ({ name, method: 'POST', path, type: JSON_TYPE, body, status }) as const;
const patch = (
  name: string,
  path: string,
  type: string,
  body: () => string | Buffer,
  status: HostileRequest['status'],
) => ({ name, method: 'PATCH', path, type, body, status }) as const;

const sizes: readonly HostileRequest[] = [
  post('a body of a byte too much', MAPS, () => Buffer.alloc(LIMIT_BYTES + 1, 0x20), 413),
  { ...post('30 MiB', MAPS, () => Buffer.alloc(10 * LIMIT_BYTES, 0x20), 413) },
  { ...post('a byte too much in chunks', MAPS, () => Buffer.alloc(LIMIT_BYTES + 1, 0x20), 413), chunked: true },
  patch('a patch of a byte too much', `${MAPS}/patched`, MERGE_PATCH, () => Buffer.alloc(LIMIT_BYTES + 1, 0x20), 413),
  {
    name: 'DeleteOptions of a byte too much',
    method: 'DELETE',
    path: `${MAPS}/nothing`,
    type: JSON_TYPE,
    body: () => Buffer.alloc(LIMIT_BYTES + 1, 0x20),
    status: 413,
  },
  post('3 MiB of spaces', MAPS, () => Buffer.alloc(LIMIT_BYTES, 0x20), 400),
  post('3 MiB of [', MAPS, () => '['.repeat(LIMIT_BYTES), 400),
  post('3 MiB of one string', MAPS, () => map('s', `,"data":{"a":"${'x'.repeat(LIMIT_BYTES - 100)}"}`), [413, 422]),
  post('3 MiB of escapes', MAPS, () => map('e', `,"data":{"a":"${'\\u0041'.repeat(500_000)}"}`), [201, 413, 422]),
  post('500,000 digits', MAPS, () => map('d', `,"data":{"a":${'9'.repeat(500_000)}}`), 400),
  post('500,000 digits of a custom resource', WILDS, () => wild('d', `,"number":${'9'.repeat(500_000)}`), [400, 422]),
];

const shapes: readonly HostileRequest[] = [
  post('objects 10,000 deep', MAPS, () => map('deep', `,"data":${nested(10_000)}`), 400),
  post('lists 10,000 deep', MAPS, () => map('deep', `,"data":${nested(10_000, '[', '', ']')}`), 400),
  post('a custom resource 10,000 deep', WILDS, () => wild('deep', `,"a":${nested(10_000)}`), 400),
  post('a custom resource 900 deep', WILDS, () => wild('deep-enough', `,"a":${nested(900)}`), [201, 400]),
  ...[MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH].map((type) =>
    patch(
      `10,000 deep, ${type}`,
      `${MAPS}/patched?fieldManager=h`,
      type,
      () => map('patched', `,"data":${nested(10_000)}`),
      400,
    ),
  ),
  patch(
    '10,000 deep in a JSON patch',
    `${MAPS}/patched`,
    JSON_PATCH,
    () => `[{"op":"add","path":"/data","value":${nested(10_000)}}]`,
    400,
  ),
  { ...post('YAML 10,000 deep', MAPS, () => nested(10_000, '{a: ', '1', '}'), 400), type: YAML_TYPE },
  {
    ...post(
      'YAML 2,000 deep in block style',
      MAPS,
      () => times(2000, (at) => `${' '.repeat(at % 1400)}a${at}:`).join('\n'),
      400,
    ),
    type: YAML_TYPE,
  },
  post(
    '100,000 labels',
    MAPS,
    () =>
      `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"l","labels":{${times(100_000, (at) => `"k${at}":"v"`).join(',')}}}}`,
    400,
  ),
  post(
    '90,000 wrong labels',
    MAPS,
    () =>
      `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"l","labels":{${times(90_000, (at) => `"-k${at}":"/"`).join(',')}}}}`,
    [413, 422],
  ),
  post(
    '90,000 annotations',
    MAPS,
    () =>
      `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"l","annotations":{${times(90_000, (at) => `"k${at}":"v"`).join(',')}}}}`,
    422,
  ),
  post(
    'as many duplicate keys as fit',
    `${MAPS}?fieldValidation=Strict`,
    () => filled('{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"dup"},"data":{', () => '"a":"b"', '}}'),
    400,
  ),
  post(
    'as many unknown fields as fit',
    `${MAPS}?fieldValidation=Warn`,
    () => filled('{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"unknown"},', (at) => `"u${at}":{}`, '}'),
    [201, 409],
  ),
  post(
    'as many unknown fields as fit, strictly',
    `${MAPS}?fieldValidation=Strict`,
    () => filled('{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"unknown-2"},', (at) => `"u${at}":{}`, '}'),
    400,
  ),
  post(
    'as many fields of a custom resource as fit',
    WILDS,
    () =>
      filled(
        '{"apiVersion":"hostile.example.com/v1","kind":"Wild","metadata":{"name":"wide"},',
        (at) => `"u${at}":1`,
        '}',
      ),
    [201, 413],
  ),
  post(
    'as many items of a keyed list as fit',
    WILDS,
    () => filled(wild('keyed', ',"keyed":[').slice(0, -1), (at) => `{"k":"${at}"}`, ']}'),
    [201, 413],
  ),
  post(
    'as many items of a set as fit',
    WILDS,
    () => filled(wild('set', ',"set":[').slice(0, -1), (at) => `"${at}"`, ']}'),
    [201, 413],
  ),
  post(
    'as many equal items of a set as fit',
    WILDS,
    () => filled(wild('equal', ',"set":[').slice(0, -1), () => '"a"', ']}'),
    422,
  ),
  post(
    'a pattern that backtracks elsewhere',
    WILDS,
    () => wild('pattern', `,"matched":["${'a'.repeat(1_000_000)}b"]`),
    422,
  ),
  post(
    'items that all miss a pattern',
    WILDS,
    () => filled(wild('patterns', ',"matched":[').slice(0, -1), () => '"aab"', ']}'),
    422,
  ),
  post(
    'pods: as many containers as fit',
    PODS,
    () =>
      filled(
        '{"apiVersion":"v1","kind":"Pod","metadata":{"name":"many"},"spec":{"containers":[',
        (at) => `{"name":"c${at}","image":"x"}`,
        ']}}',
      ),
    [201, 413, 422],
  ),
  post(
    'pods: as many variables as fit',
    PODS,
    () =>
      filled(
        '{"apiVersion":"v1","kind":"Pod","metadata":{"name":"many"},"spec":{"containers":[{"name":"c","image":"x","env":[',
        (at) => `{"name":"e${at}"}`,
        ']}]}}',
      ),
    [201, 409, 413, 422],
  ),
  post(
    'pods: as many finalizers as fit',
    PODS,
    () =>
      filled(
        '{"apiVersion":"v1","kind":"Pod","metadata":{"name":"final","finalizers":[',
        (at) => `"x.io/f${at}"`,
        ']},"spec":{"containers":[{"name":"c","image":"x"}]}}',
      ),
    [201, 413, 422],
  ),
  post(
    'as many owners as fit',
    MAPS,
    () =>
      filled(
        '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"owned","ownerReferences":[',
        (at) => `{"apiVersion":"v1","kind":"A","name":"a","uid":"${at}"}`,
        ']}}',
      ),
    [201, 413, 422],
  ),
  post(
    'as many field owners as fit',
    MAPS,
    () =>
      filled(
        '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"managed","managedFields":[',
        (at) =>
          `{"manager":"m${at}","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:a":{}}}}`,
        ']}}',
      ),
    [201, 413, 422],
  ),
];

const texts: readonly HostileRequest[] = [
  post(
    'bytes that are no UTF-8',
    MAPS,
    () =>
      Buffer.concat([
        Buffer.from('{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"utf8"},"data":{"a":"'),
        Buffer.from([0xff, 0xc0, 0x80, 0xed, 0xa0, 0x80]),
        Buffer.from('"}}'),
      ]),
    [201, 409],
  ),
  post(
    'a name that is no UTF-8',
    MAPS,
    () =>
      Buffer.concat([
        Buffer.from('{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"'),
        Buffer.from([0xff, 0xfe]),
        Buffer.from('"}}'),
      ]),
    422,
  ),
  post('half of a surrogate pair', MAPS, () => map('half', ',"data":{"a":"\\ud800"}'), [201, 409]),
  post('a number beyond all numbers', WILDS, () => wild('huge', ',"number":1e400'), 400),
  post('an integer beyond 64 bits', WILDS, () => wild('huge', ',"number":92233720368547758080'), 422),
  post('nothing', MAPS, () => '', 400),
  post('only a NUL', MAPS, () => '\0', 400),
  { ...post('protobuf that is none', MAPS, () => 'k8s\0', 400), type: PROTOBUF_TYPE },
  {
    ...post(
      'protobuf with a length beyond its end',
      MAPS,
      () => Buffer.from([0x6b, 0x38, 0x73, 0, 0x0a, 0xff, 0xff, 0xff, 0xff, 0x07]),
      400,
    ),
    type: PROTOBUF_TYPE,
  },
  {
    ...post(
      'protobuf of 3 MiB of empty groups',
      MAPS,
      () => Buffer.concat([Buffer.from('k8s\0'), Buffer.alloc(LIMIT_BYTES - 4, 0x0b)]),
      400,
    ),
    type: PROTOBUF_TYPE,
  },
  {
    ...post(
      'protobuf of 3 MiB of small fields',
      MAPS,
      () => Buffer.concat([Buffer.from('k8s\0'), Buffer.alloc(LIMIT_BYTES - 4, Buffer.from([0x38, 0x01]))]),
      // As in kube-apiserver, unknown fields are skipped, and an object without a name is left.
      422,
    ),
    type: PROTOBUF_TYPE,
  },
];

/** Returns a structure that expands to 10 to the power of `levels` values of one byte each. */
const bomb = (levels: number, width = 10): string =>
  times(levels, (at) => `a${at}: &a${at} [${times(width, () => (at === 0 ? 'x' : `*a${at - 1}`)).join(',')}]`).join(
    '\n',
  );

const yaml: readonly HostileRequest[] = [
  { ...post('anchors that explode', MAPS, () => bomb(9), 400), type: YAML_TYPE },
  { ...post('anchors that explode a little', MAPS, () => bomb(4), 422), type: YAML_TYPE },
  { ...post('anchors just below the bound', MAPS, () => bomb(5, 9), 422), type: YAML_TYPE },
  { ...post('an anchor in itself', MAPS, () => 'a: &a [*a]', 400), type: YAML_TYPE },
  {
    ...post(
      'one large anchor many times',
      MAPS,
      () => `a: &a [${'x,'.repeat(10_000)}]\nb: [${'*a,'.repeat(900_000)}]`,
      400,
    ),
    type: YAML_TYPE,
  },
  {
    ...post(
      'merge keys that explode',
      MAPS,
      () => `a: &a {${times(20_000, (at) => `k${at}: v`).join(', ')}}\nb: [${'{<<: *a},'.repeat(20_000)}]`,
      400,
    ),
    type: YAML_TYPE,
  },
  {
    ...post(
      '3 MiB of YAML in block style',
      MAPS,
      () =>
        `apiVersion: v1\nkind: ConfigMap\nmetadata: {name: block}\ndata:\n${times(200_000, (at) => `  k${at}: v`).join('\n')}`,
      400,
    ),
    type: YAML_TYPE,
  },
  { ...post('3 MiB of YAML lists', MAPS, () => '- '.repeat(LIMIT_BYTES / 2), 400), type: YAML_TYPE },
  { ...post('3 MiB of YAML keys', MAPS, () => 'a: b\n'.repeat(LIMIT_BYTES / 5), 400), type: YAML_TYPE },
  { ...post('3 MiB of commas', MAPS, () => `[${'a,'.repeat(LIMIT_BYTES / 2 - 1)}]`, 400), type: YAML_TYPE },
  { ...post('3 MiB of one quoted line', MAPS, () => `"${'x '.repeat(LIMIT_BYTES / 2 - 1)}"`, 400), type: YAML_TYPE },
  { ...post('3 MiB of blank lines', MAPS, () => '\n'.repeat(LIMIT_BYTES), 422), type: YAML_TYPE },
  { ...post('3 MiB of quoted blank lines', MAPS, () => `"${'\n'.repeat(LIMIT_BYTES - 2)}"`, 400), type: YAML_TYPE },
  { ...post('3 MiB of documents', MAPS, () => '---\n'.repeat(LIMIT_BYTES / 4), 422), type: YAML_TYPE },
  { ...post('3 MiB of comments', MAPS, () => '#\n'.repeat(LIMIT_BYTES / 2), 422), type: YAML_TYPE },
  { ...post('3 MiB of tags', MAPS, () => '!a '.repeat(LIMIT_BYTES / 3), 400), type: YAML_TYPE },
  patch('anchors that explode in an apply', `${MAPS}/patched?fieldManager=h`, APPLY_PATCH, () => bomb(9), 400),
];

const operations = (count: number, one: (at: number) => object): string => JSON.stringify(times(count, one));

const patches: readonly HostileRequest[] = [
  {
    ...patch(
      'a patch of 10,001 operations',
      `${MAPS}/patched`,
      JSON_PATCH,
      () => operations(10_001, () => ({ op: 'test', path: '/kind', value: 'ConfigMap' })),
      413,
    ),
    message: /The allowed maximum operations in a JSON patch is 10000, got 10001/,
  },
  patch(
    'a patch of 10,000 operations',
    `${MAPS}/patched`,
    JSON_PATCH,
    () => operations(10_000, (at) => ({ op: 'add', path: `/data/k${at}`, value: 'v' })),
    200,
  ),
  patch(
    'copies that double',
    `${WILDS}/patched`,
    JSON_PATCH,
    () => operations(60, () => ({ op: 'copy', from: '/list', path: '/list/-' })),
    422,
  ),
  patch(
    'copies of something large',
    `${WILDS}/patched`,
    JSON_PATCH,
    () =>
      operations(9000, (at) =>
        at === 0
          ? { op: 'add', path: '/big', value: 'x'.repeat(1_000_000) }
          : { op: 'copy', from: '/big', path: `/c${at}` },
      ),
    422,
  ),
  patch(
    'copies of a wide list',
    `${WILDS}/patched`,
    JSON_PATCH,
    () =>
      operations(9000, (at) =>
        at === 0
          ? { op: 'add', path: '/big', value: times(50_000, () => 1) }
          : { op: 'copy', from: '/big', path: '/c' },
      ),
    422,
  ),
  patch(
    'a long list moved to its front',
    `${WILDS}/patched`,
    JSON_PATCH,
    () =>
      operations(10_000, (at) =>
        at === 0
          ? { op: 'add', path: '/big', value: times(50_000, () => 1) }
          : { op: 'move', from: '/big/49999', path: '/big/0' },
      ),
    [200, 413],
  ),
  patch(
    'a large value tested over and over',
    `${WILDS}/patched`,
    JSON_PATCH,
    () =>
      operations(10_000, (at) =>
        at === 0
          ? { op: 'add', path: '/big', value: times(50_000, () => 1) }
          : at < 3
            ? { op: 'copy', from: '/big', path: `/b${at}` }
            : { op: 'test', path: '', value: {} },
      ),
    422,
  ),
  patch(
    'paths of 100,000 parts',
    `${WILDS}/patched`,
    JSON_PATCH,
    () => operations(10, () => ({ op: 'add', path: '/a'.repeat(100_000), value: 1 })),
    422,
  ),
  patch(
    '__proto__ in a JSON patch',
    `${WILDS}/patched`,
    JSON_PATCH,
    () => operations(1, () => ({ op: 'add', path: '/__proto__/polluted', value: 1 })),
    422,
  ),
  patch(
    'constructor in a JSON patch',
    `${WILDS}/patched`,
    JSON_PATCH,
    () => operations(1, () => ({ op: 'add', path: '/constructor/prototype/polluted', value: 1 })),
    422,
  ),
  ...[MERGE_PATCH, APPLY_PATCH].map((type) =>
    patch(
      `__proto__ and constructor, ${type}`,
      `${WILDS}/patched?fieldManager=h&force=true`.replace('&force=true', type === APPLY_PATCH ? '&force=true' : ''),
      type,
      () => wild('patched', ',"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}}'),
      200,
    ),
  ),
  patch(
    '__proto__ in a strategic patch',
    `${MAPS}/patched`,
    STRATEGIC_PATCH,
    () => '{"__proto__":{"polluted":1},"data":{"__proto__":"x","constructor":"y"}}',
    200,
  ),
  patch(
    'a strategic patch of many containers',
    `${CORE}/replicationcontrollers/patched`,
    STRATEGIC_PATCH,
    () => filled('{"spec":{"template":{"spec":{"containers":[', (at) => `{"name":"c${at}","image":"x"}`, ']}}}}'),
    [200, 404, 413, 422],
  ),
  patch(
    'an apply of many keyed items',
    `${WILDS}/applied?fieldManager=h`,
    APPLY_PATCH,
    () => filled(wild('applied', ',"keyed":[').slice(0, -1), (at) => `{"k":"${at}"}`, ']}'),
    [201, 413, 422],
  ),
  patch(
    'the same again by another',
    `${WILDS}/applied?fieldManager=i`,
    APPLY_PATCH,
    () => filled(wild('applied', ',"keyed":[').slice(0, -1), (at) => `{"k":"${at}"}`, ']}'),
    [200, 201, 413, 422],
  ),
  patch(
    'an apply of many keys',
    `${MAPS}/applied?fieldManager=h`,
    APPLY_PATCH,
    () => filled(map('applied', ',"data":{').slice(0, -1), (at) => `"k${at}":"v"`, '}}'),
    [201, 413, 422],
  ),
];

const paths: readonly HostileRequest[] = [
  {
    ...post(
      'a field manager that is wrong in each of 100,000 letters',
      `${MAPS}?fieldManager=${'%01'.repeat(100_000)}`,
      () => map('m', ''),
      422,
    ),
    message: /and \d+ more/,
  },
  {
    name: 'a selector of 50,000 requirements',
    method: 'GET',
    path: `${MAPS}?labelSelector=${times(50_000, (at) => `!k${at}`).join(',')}`,
    status: [200, 400],
  },
  {
    name: 'a set of 50,000 values',
    method: 'GET',
    path: `${MAPS}?labelSelector=a+in+(${times(50_000, (at) => `v${at}`).join(',')})`,
    status: [200, 400],
  },
  {
    name: 'a field selector of 20,000 terms',
    method: 'GET',
    path: `${MAPS}?fieldSelector=${times(20_000, () => 'metadata.name=a').join(',')}`,
    status: [200, 400],
  },
  { name: 'a name of 100,000 letters', method: 'GET', path: `${MAPS}/${'a'.repeat(100_000)}`, status: [404, 414] },
  { name: 'a path of 100,000 parts', method: 'GET', path: '/a'.repeat(100_000), status: [404, 414] },
  {
    name: 'a continue token that is none',
    method: 'GET',
    path: `${MAPS}?limit=1&continue=${'x'.repeat(10_000)}`,
    status: 400,
  },
  {
    name: 'an Accept of 20,000 types',
    method: 'GET',
    path: MAPS,
    accept: times(20_000, (at) => `a/b${at};q=0.1`).join(','),
    status: [200, 406],
  },
];

/** All requests, each with the statuses that the server may answer. */
export const hostileRequests: readonly HostileRequest[] = [
  ...sizes,
  ...shapes,
  ...texts,
  ...yaml,
  ...patches,
  ...paths,
];
