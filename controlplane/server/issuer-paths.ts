/** Serves the issuer's discovery document and its keys, with which other programs verify service account tokens. */
import { checkProduced } from './media-type.ts';
import { type PathHandler, type PathHandlers, reading } from './path-handlers.ts';

interface IssuerDocuments {
  /** The document as JSON. */
  discoveryDocument(): string;
  keySet(): string;
}

/** The header by which verifiers may cache the responses, because keys change rarely. */
const CACHING = 'public, max-age=3600';

/** Adds the two paths of OpenID Connect Discovery that service account issuers serve. */
export function installIssuer(paths: PathHandlers, issuer: IssuerDocuments): void {
  paths.service(
    '/.well-known/openid-configuration',
    document('application/json', () => issuer.discoveryDocument()),
  );
  paths.service(
    '/openid/v1/jwks',
    document('application/jwk-set+json', () => issuer.keySet()),
  );
}

function document(type: string, text: () => string): PathHandler {
  return reading((request) => {
    checkProduced(request.header('accept'), [type]);
    const body = text();
    request.status = 200;
    request.responseBytes = body.length;
    request.exchange.send(200, { ...request.responseHeaders(type), 'cache-control': CACHING }, body);
  });
}
