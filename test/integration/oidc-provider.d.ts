/** Declares the types that tests use of the npm package `oidc-provider`, which has none. */
declare module 'oidc-provider' {
  import type { IncomingMessage, ServerResponse } from 'node:http';

  interface IdToken {
    scope: string;
    set(claim: string, value: unknown): void;
    issue(options: { readonly use: 'idtoken' }): Promise<string>;
  }

  interface Context {
    body: unknown;
    readonly oidc: {
      readonly provider: { readonly IdToken: new (claims: object, options: { readonly ctx: Context }) => IdToken };
    };
  }

  export default class Provider {
    constructor(issuer: string, configuration: object);
    registerGrantType(name: string, handler: (ctx: Context) => Promise<void>): void;
    callback(): (message: IncomingMessage, response: ServerResponse) => Promise<void>;
  }
}
