/**
 * Lists the paths that no row of the catalog has: those of discovery, of the version and of the issuer of service account
 * tokens. As in kube-apiserver's documents, the groups of custom resources have no paths of discovery.
 */
import type { JsonObject } from '../../../api/meta/object.ts';
import { discoveryId, groupPrefix, groupTag } from './group-names.ts';
import { basePath } from './operations.ts';
import type { SchemaWriter } from './schemas.ts';
import { BUILT_IN, type OpenApiSource } from './source.ts';

interface PlainPath {
  /** The path, for example `/apis/apps/`. */
  readonly path: string;
  /** The name of the OpenAPI 3 document that contains the path, for example `apis/apps`. */
  readonly document: string;
  readonly id: string;
  readonly tag: string;
  readonly description: string;
  /** The type of the response. Absent if the response is text. */
  readonly answer?: string;
  readonly produces: readonly string[];
}

const META = 'io.k8s.apimachinery.pkg.apis.meta.v1.';
const VERSIONS = 'get available API versions';

/** Returns the row of a discovery path, whose response is of a kind of `meta/v1`. */
function discovery(
  path: string,
  kind: string,
  { id, tag, description }: Pick<PlainPath, 'id' | 'tag' | 'description'>,
): PlainPath {
  const document = path.slice(1);
  return { path: `${path}/`, document, id, tag, description, answer: `${META}${kind}`, produces: BUILT_IN.answers };
}

const FIXED: readonly PlainPath[] = [
  discovery('/api', 'APIVersions', { id: 'getCoreAPIVersions', tag: 'core', description: VERSIONS }),
  discovery('/apis', 'APIGroupList', { id: 'getAPIVersions', tag: 'apis', description: VERSIONS }),
  {
    path: '/version/',
    document: 'version',
    id: 'getCodeVersion',
    tag: 'version',
    description: 'get the version information for this server',
    answer: 'io.k8s.apimachinery.pkg.version.Info',
    produces: ['application/json'],
  },
  {
    path: '/.well-known/openid-configuration/',
    document: '.well-known/openid-configuration',
    id: 'getServiceAccountIssuerOpenIDConfiguration',
    tag: 'WellKnown',
    description: "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'",
    produces: ['application/json'],
  },
  {
    path: '/openid/v1/jwks/',
    document: 'openid/v1/jwks',
    id: 'getServiceAccountIssuerOpenIDKeyset',
    tag: 'openid',
    description: 'get service account issuer OpenID JSON Web Key Set (contains public token verification keys)',
    produces: ['application/jwk-set+json'],
  },
];

/** Returns the paths, computed from the groups and versions that the catalog has now. */
export function plainPaths(source: OpenApiSource): PlainPath[] {
  const found = new Map(FIXED.map((one) => [one.path, one]));
  for (const { group, version, custom } of source.catalog.resources()) {
    if (custom !== undefined) continue;
    const base = basePath(group, version);
    const list = discovery(base, 'APIResourceList', {
      id: discoveryId(group, version),
      tag: groupTag(group, version),
      description: 'get available resources',
    });
    found.set(list.path, list);
    if (group === '') continue;
    const one = discovery(`/apis/${group}`, 'APIGroup', {
      id: `get${groupPrefix(group, '')}APIGroup`,
      tag: groupTag(group),
      description: 'get information of a group',
    });
    found.set(one.path, one);
  }
  return [...found.values()];
}

/** Returns the names of the OpenAPI 3 documents that contain no path of a row of the catalog. */
export function plainDocuments(source: OpenApiSource): string[] {
  const served = new Set(source.catalog.resources().map(({ group, version }) => basePath(group, version).slice(1)));
  return plainPaths(source)
    .map(({ document }) => document)
    .filter((document) => !served.has(document));
}

const schemaOf = ({ answer }: PlainPath, writer: SchemaWriter): JsonObject =>
  answer === undefined ? { type: 'string' } : writer.reference(answer);

/** Returns the path item of OpenAPI 2. */
export function plainItemV2(path: PlainPath, writer: SchemaWriter): JsonObject {
  return {
    get: {
      // Paths whose response is of no kind of the API declare no body.
      ...(path.answer === undefined ? {} : { consumes: [...path.produces] }),
      description: path.description,
      operationId: path.id,
      produces: [...path.produces],
      responses: {
        '200': { description: 'OK', schema: schemaOf(path, writer) },
        '401': { description: 'Unauthorized' },
      },
      schemes: ['https'],
      tags: [path.tag],
    },
  };
}

/** Returns the path item of OpenAPI 3. */
export function plainItemV3(path: PlainPath, writer: SchemaWriter): JsonObject {
  const schema = schemaOf(path, writer);
  const content = Object.fromEntries(path.produces.map((type) => [type, { schema }]));
  return {
    get: {
      tags: [path.tag],
      description: path.description,
      operationId: path.id,
      responses: { '200': { description: 'OK', content }, '401': { description: 'Unauthorized' } },
    },
  };
}
