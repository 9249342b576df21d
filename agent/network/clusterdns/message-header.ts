/** Names the parts of the header of a DNS message (RFC 1035, 4.1.1). */

export const HEADER_BYTES = 12;
/** The flag of responses. */
export const RESPONSE = 0x8000;
/** The response codes. */
export const NO_ERROR = 0;
export const FORMAT_ERROR = 1;
export const SERVER_FAILURE = 2;
export const NO_SUCH_NAME = 3;
export const NOT_IMPLEMENTED = 4;
export const REFUSED = 5;
/** A version of EDNS that the server does not know (RFC 6891, 9). Its upper bits stand in the record OPT. */
export const BAD_VERSION = 16;
