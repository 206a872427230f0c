-- Found by require "beside.module".
return { name = ... }
