/** Adds the routes of `/statusz` and `/flagz` to the agent's server. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import {
  type Flagz,
  flagzResponse,
  type Statusz,
  statuszResponse,
  type ZpageRequest,
  type ZpageResponse,
} from '../../api/http/zpages.ts';

/** The data of the enabled pages, computed for each request. */
export interface Zpages {
  /** Absent if the page is disabled. */
  readonly statusz?: () => Omit<Statusz, 'paths'>;
  /** The values of the flags by name: those of the command line, else the defaults. */
  readonly flagz?: () => Flagz;
}

const COMPONENT = 'kubelet';

/** Adds the routes of the enabled pages. `paths` are those that `/statusz` lists. */
export function installZpages(app: FastifyInstance, { statusz, flagz }: Zpages, paths: readonly string[]): void {
  if (flagz !== undefined) install(app, '/flagz', (request) => flagzResponse(request, COMPONENT, flagz()));
  if (statusz !== undefined) {
    const listed = [...paths, ...(flagz === undefined ? [] : ['/flagz'])].toSorted();
    install(app, '/statusz', (request) => statuszResponse(request, COMPONENT, { ...statusz(), paths: listed }));
  }
}

function install(app: FastifyInstance, path: string, respond: (request: ZpageRequest) => ZpageResponse): void {
  app.all(path, (request: FastifyRequest, reply: FastifyReply) => {
    const { accept, 'user-agent': userAgent = '' } = request.headers;
    const { pretty } = request.query as { readonly pretty?: string | readonly string[] };
    const first = typeof pretty === 'string' ? pretty : pretty?.[0];
    const { status, type, body, warning } = respond({ accept, userAgent, pretty: first ?? null });
    if (warning !== undefined) reply.header('warning', warning);
    return reply.code(status).type(type).send(body);
  });
}
