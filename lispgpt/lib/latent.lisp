; Attention over keys and values that are kept compressed, as one row a position for all heads: "DeepSeek-V2", 2024.
; What a head makes of a compressed row, `kv-b` times it, is never made: of queries one part is multiplied by the heads'
; share of `kv-b` before, and of what they found another after, which is the same.
(require nn)

; a [rows heads x], b [rows heads y] -> [rows heads x+y]
(defn beside [a b]
  (let [[n heads x] (shape a)
        y (dim b 2)
        room (tensor [r n h heads c (+ x y)] 0.0)]
    (insert b (insert a room [0 0 0] [n heads x]) [0 0 x] [n heads y])))

; new [rows 1 wide] is put into cache -> all that is there, [batch 1 context wide]; of whole texts their own rows
(defn seen-by [new cache]
  (let [[n _ wide] (shape new)
        b (batch)]
    (check-cache cache 1 1 wide)
    (if (text-rows)
      (reshape new [b 1 (/ n b) wide])
      (let [first-batch (= (batch-place cache) 0)
            kept (write-state-at-positions cache
                                           (write-rows (state-as-stored cache) 0 (packed-rows new cache) first-batch))
            sizes (in-cache first-batch b nil [1 (dim kept 3) (dim kept 4)])]
        (unpacked-rows (slice kept (in-cache first-batch 0 0 [0 0 0]) sizes) cache)))))

; plain [rows heads p] and turned [rows heads t] are parts of the queries, latent [rows rank] and key [rows 1 t] what is
; kept, kv-b [heads*(p+size) rank], cache (latents l), of [batch 1 1 context rank+t] -> [rows heads*size]
(defn attend-latent [plain turned latent key kv-b cache scale]
  (let [[n heads p] (shape plain)
        rank (dim latent 1)
        each (quot (dim kv-b 0) heads)
        size (- each p)
        by-head (reshape kv-b [heads each rank])
        part (fn [start rows] (slice by-head [0 start 0] [heads rows rank]))
        q (* scale (beside (contract [n h r] plain [n h p] (part 0 p) [h p r]) turned))
        seen-rows (seen-by (beside (reshape latent [n 1 rank]) key) cache)
        [b s wide context] [(batch) (/ n (batch)) (dim q 2) (dim seen-rows 2)]
        positions (reshape (row-positions) [b s])
        scores (contract [b s g h t] (reshape q [b s 1 heads wide]) [b s g h d] seen-rows [b g t d])
        seen (tensor [i b j s g 1 h heads t context]
               (select (<= t (at positions i j)) (in-document (at scores i j g h t) i t j) -inf))
        found (reshape (contract [b s g h d] (softmax seen) [b s g h t] seen-rows [b g t d]) [n heads wide])]
    (reshape (contract [n h v] (slice found [0 0 0] [n heads rank]) [n h r] (part p size) [h v r]) [n (* heads size)])))

; Of x [rows width]: q [rows heads*(plain+turned)] are its queries, kv-a [rank+turned width] makes what is kept, of which
; norm [rank] is for what is compressed; turn: a function of [rows heads turned], by positions -> [rows heads*size]
(defn latent-attention [x q kv-a norm kv-b cache turn heads]
  (let [[n rank] [(dim q 0) (dim norm 0)]
        [each turned] [(quot (dim q 1) heads) (- (dim kv-a 0) rank)]
        plain (- each turned)
        kv (linear x kv-a)
        q (reshape q [n heads each])
        q-turned (turn (halves-first (slice q [0 0 plain] [n heads turned]) turned))
        key (turn (halves-first (reshape (slice kv [0 rank] [n turned]) [n 1 turned]) turned))
        latent (rms-norm (slice kv [0 0] [n rank]) norm 1e-6)]
    (attend-latent (slice q [0 0 0] [n heads plain]) q-turned latent key kv-b cache (/ (longer-scores) (sqrt each)))))

; x [rows in] through a narrow [narrow in], a norm [narrow] and a wide [out narrow] -> [rows out]
(defn low-rank [x narrow norm wide]
  (linear (rms-norm (linear x narrow) norm 1e-6) wide))
