; BERT: tokens that were hidden are found again; a text's padding is not seen.
(require nn arrays training)
(config vocab 64  context 16  layers 2  heads 2  width 16)
(weights (table [vocab width] {:init (normal 0.02)}) (places [context width] {:init (normal 0.02)})
  (per layers (qkv-w [(* 3 width) width]) (qkv-b [(* 3 width)]) (out-w [width width]) (out-b [width])
    (up-w [(* 4 width) width]) (up-b [(* 4 width)]) (down-w [width (* 4 width)]) (down-b [width])
    (norm1-w [width] {:init 1}) (norm1-b [width]) (norm2-w [width] {:init 1}) (norm2-b [width]))
  (bias [vocab]))

(defn layer [x l mask]
  (let [[texts length] (shape mask)
        qkv (linear x (qkv-w l) (qkv-b l))
        [q k v] (map (fn [part] (reshape part [texts length heads (quot width heads)]))
                     (split-heads qkv (quot width heads) heads heads))
        seen (reshape (attention-to q k v {:mask mask}) [(* texts length) width])
        x (layer-norm (+ x (linear seen (out-w l) (out-b l))) (norm1-w l) (norm1-b l))
        h (linear (gelu-exact (linear x (up-w l) (up-b l))) (down-w l) (down-b l))]
    (layer-norm (+ x h) (norm2-w l) (norm2-b l))))

; targets are below 0 where nothing was hidden
(entry fit [(tokens [batch length] i32) (mask [batch length] i32) (targets [batch length] i32)]
  (let [[texts length] (shape tokens)
        n (* texts length)
        x (+ (reshape (rows table (reshape tokens [n])) [texts length width])
             (tensor [b texts t length c width] (at places t c)))
        x (fold (fn [x l] (layer x l mask)) (reshape x [n width]) (range layers))
        [loss right] (cross-entropy (linear x table bias) (reshape targets [n]) vocab)]
    {:loss loss :right right}))
(training fit)
